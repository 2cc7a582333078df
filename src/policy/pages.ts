/**
 * Who holds which page of the key-value cache. Pages are numbers; several conversations may hold the same full page.
 * Knows nothing of what is in them. Page 0 belongs to nobody: it stands where a page table has nothing to say.
 */
export class PagePool {
  private readonly holders = [0]
  private readonly free: number[] = []

  /** Pages there are now, page 0 included. */
  get size(): number {
    return this.holders.length
  }

  grow(size: number): void {
    // The lowest page comes out first.
    for (let page = size - 1; page >= this.holders.length; page--) this.free.push(page)
    while (this.holders.length < size) this.holders.push(0)
  }

  /** A page for one holder; null when none is free. */
  take(): number | null {
    const page = this.free.pop()
    if (page === undefined) return null
    this.holders[page] = 1
    return page
  }

  share(page: number): void {
    this.holders[page]!++
  }

  isShared(page: number): boolean {
    return this.holders[page]! > 1
  }

  release(pages: readonly number[]): void {
    for (const page of pages) {
      if (this.holders[page]! < 1) throw new Error(`page ${page} is released by nobody who holds it`)
      if (--this.holders[page]! === 0) this.free.push(page)
    }
  }

  /** Pages that somebody holds. */
  get used(): number {
    return this.holders.length - 1 - this.free.length
  }
}
