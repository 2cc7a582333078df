/**
 * What a master's query asks of the embedded vision agent, told from its words. The table is the whole of it: first match wins, so that
 * "what color is the sign" is about colour and "what number is on the sign" about text.
 */

export type QueryKind = 'count' | 'colour' | 'text' | 'object' | 'everything'

const table: readonly (readonly [QueryKind, RegExp])[] = [
  ['count', /\b(how many|count\w*|number of|amount of)\b/],
  ['colour', /\bcolou?r\w*\b/],
  [
    'text',
    /\b(text\w*|signs?|words?|writ\w*|read\w*|says?|letters?|captions?|titles?|subtitles?|labels?|logos?|spell\w*)\b/,
  ],
  [
    'object',
    /\b(objects?|things?|items?|shown?|shows?|visible|pictured?|see|seen|who|people|persons?|animals?|vehicles?|holding)\b/,
  ],
  ['count', /\bnumbers?\b/],
]

export function queryKind(query: string): QueryKind {
  const words = query.toLowerCase()
  return table.find(([, pattern]) => pattern.test(words))?.[0] ?? 'everything'
}
