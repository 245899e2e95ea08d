// What a user can get wrong. The page shows these messages; anything else is a fault of the page.

export class BitstreamError extends Error {}
export class RateError extends Error {}
export class ModelError extends Error {}
export class AudioError extends Error {}
