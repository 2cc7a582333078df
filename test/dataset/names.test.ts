import { expect, test } from 'vitest'
import { compareClips, compareEpisodes, parseClipName, parseEpisodeName } from '../../src/dataset/names.ts'

test('clip names of the six shows', () => {
  const shows = ['s01e02', 'friends_s01e02', 'met_s01e02', 'castle_s01e02', 'house_s01e02', 'grey_s01e02'].map(
    (episode) => {
      const clip = parseClipName(`${episode}_seg02_clip_07`)
      expect(clip).toMatchObject({ episodeId: episode, season: 1, episode: 2, segment: 2, clip: 7 })
      return clip?.show
    },
  )
  expect(shows).toEqual(['bbt', 'friends', 'met', 'castle', 'house', 'grey'])
})

test('double episodes are one episode', () => {
  expect(parseClipName('friends_s09e23-24_seg01_clip_03')).toMatchObject({
    episodeId: 'friends_s09e23-24',
    episode: 23,
  })
  expect(parseEpisodeName('friends_s09e23-24')).toEqual({ show: 'friends', season: 9, episode: 23 })
})

test('what is no name', () => {
  for (const name of [
    's1e2_seg01_clip_00',
    'S01E02_seg01_clip_00',
    's01e02',
    'seg01_clip_00',
    's01e02_seg01_clip_00.jpg',
    '',
  ]) {
    expect(parseClipName(name), name).toBeNull()
  }
})

test('clips are ordered by segment and clip as numbers, episodes by show, season and number', () => {
  const clips = ['s01e01_seg02_clip_00', 's01e01_seg01_clip_10', 's01e01_seg01_clip_09', 's01e01_seg01_clip_100'].map(
    (id) => parseClipName(id),
  )
  const order = clips.map((clip) => clip as NonNullable<typeof clip>).sort(compareClips)
  expect(order.map((clip) => [clip.segment, clip.clip])).toEqual([
    [1, 9],
    [1, 10],
    [1, 100],
    [2, 0],
  ])
  expect(['house_s01e01', 's02e01', 's01e10', 's01e09'].sort(compareEpisodes)).toEqual([
    's01e09',
    's01e10',
    's02e01',
    'house_s01e01',
  ])
})
