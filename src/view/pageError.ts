/** A mistake in what was asked for, with the status that says so; every other error is ours. */
export class PageError extends Error {
  constructor(
    readonly statusCode: number,
    message: string,
  ) {
    super(message)
  }
}
