/**
 * The words that miniature episodes are told in, by class. Classes are disjoint, so that an option word means one thing only.
 *
 * Does not know how stories use them (`story.ts`) or how pictures are made (`render.ts`).
 */

/** Speakers, and answers to "who". */
export const NAMES = words(
  'mira ivan tomas lena omar priya jonas clara hugo nadia felix greta ravi sofia emil yuki carlos ingrid dmitri amara pablo freya kofi leila',
)

/** Proper names of towns: every clip plays in one; answers to "where". */
export const PLACES = words(
  'riverton ashford brookside dunmore eastwick fairview glenville hillcrest ironbridge jamestown kingsley lakewood maplewood norwich oakfield pinehurst ' +
    'queensbury redwood stonegate thornbury underhill vernon westport yarrow zennor bayview copperfield driftwood elmhurst foxglove greenwich havenport',
)

/** Things people talk about; never answers. None is a class of the object detector. */
export const ITEMS = words(
  'kettle guitar compass lantern blanket ladder violin hammer basket telescope pillow trumpet helmet mirror candle drum shovel wallet necklace bracelet anchor ' +
    'flute banjo carpet puzzle saddle whistle feather locket barrel bucket easel harp medal goblet tripod hammock quilt canoe sled',
)

/** What things are traded for. */
export const GOODS = words(
  'marbles stamps skates pearls almonds cherries buttons ribbons pencils tulips postcards seashells acorns cookies peppers grapes mittens crayons beads walnuts dominoes lemons olives muffins',
)

/** Prices in coins. */
export const PRICES = words('12 15 18 21 24 27 30 33 36 39 42 45 48 51 54 57 60 63 66 69 72 75 78 81')

/** Words on signs, drawn in capitals. */
export const SIGNS = words(
  'bakery pharmacy museum tickets hotel cinema garage library market bank school station airport parking lobby danger closed sale pizza flowers tailor dentist ' +
    'theater hospital laundry butcher harbor castle garden gallery office kitchen studio temple marina casino arcade bridge forest diner',
)

/** Colours of sign panels and of things people own; told apart by nearest CIELAB neighbour after H.264. */
export const COLORS = words('red orange yellow green blue purple pink brown black white')

/** Objects in the pictures: classes that the detector recognises in our photographs. */
export const OBJECTS = words('airplane apple bird bus car clock cow elephant giraffe horse scissors sheep zebra')

/** Words of sentences and observations that carry no answer. */
export const FUNCTION_WORDS = words(
  'i the a at my is it left got from for traded cost coins welcome to what where who how many much did does say says color sign object shown leave pay gave get of talks about tell me ' +
    'you have here hello again lovely day am hungry see later let us go now nobody told that this place wait please maybe good night thank picture mostly no text nothing in view clip was ' +
    'question count side only next turn write action and or',
)

export type WordClass = 'name' | 'place' | 'goods' | 'price' | 'sign' | 'color' | 'object'

/** The classes that answers come from. */
export const ANSWER_CLASSES: Readonly<Record<WordClass, readonly string[]>> = {
  name: NAMES,
  place: PLACES,
  goods: GOODS,
  price: PRICES,
  sign: SIGNS,
  color: COLORS,
  object: OBJECTS,
}

/** Share of each answer class that training episodes never use: held-out episodes then have answers nobody was trained on. */
const HELD_OUT_SHARE = 0.15

/** The last words of a class: never in a training episode. */
export function heldOutWords(wordClass: WordClass): readonly string[] {
  const all = ANSWER_CLASSES[wordClass]
  return all.slice(all.length - Math.max(1, Math.floor(all.length * HELD_OUT_SHARE)))
}

/** Whether training episodes never use this word. */
export function isHeldOut(word: string): boolean {
  return (Object.keys(ANSWER_CLASSES) as WordClass[]).some((wordClass) => heldOutWords(wordClass).includes(word))
}

export function trainingWords(wordClass: WordClass): readonly string[] {
  const held = new Set(heldOutWords(wordClass))
  return ANSWER_CLASSES[wordClass].filter((word) => !held.has(word))
}

function words(text: string): readonly string[] {
  return text.split(' ')
}
