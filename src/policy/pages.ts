/**
 * Who holds which page of the key-value cache, and what full pages hold. Pages are numbers; several conversations may hold the same
 * full page. A full page whose tokens are known by all that stands before it can be found again (Zheng et al. 2024, arXiv:2312.07104):
 * it is kept, as long as there is room, when nobody holds it any more.
 * Knows no tensors. Page 0 belongs to nobody: it stands where a page table has nothing to say.
 */

/** A full page that can be found. */
interface Known {
  page: number
  /** Its scope, the known page before it and its tokens. */
  key: string
  scope: string
  /** Never used again, so that what is looked for behind a forgotten page is not found. */
  serial: number
}

export class PagePool {
  private readonly holders = [0]
  private readonly free: number[] = []
  /** Least recently used first; a page never before those that build on it. */
  private readonly known = new Map<string, Known>()
  private readonly knownPages = new Set<number>()
  private serial = 0

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

  /** Others may read it: it must not be written into. */
  isShared(page: number): boolean {
    return this.holders[page]! > 1
  }

  release(pages: readonly number[]): void {
    for (const page of pages) {
      if (this.holders[page]! < 1) throw new Error(`page ${page} is released by nobody who holds it`)
      if (--this.holders[page]! === 0) this.free.push(page)
    }
  }

  /**
   * Makes full pages known: `pages[n]` holds tokens [n * pageSize, (n + 1) * pageSize) of `ids`. `scope` tells apart what must not be
   * mixed (weights).
   */
  remember(scope: string, ids: readonly number[], pages: readonly number[], pageSize: number): void {
    this.walk(scope, ids, Math.min(pages.length, Math.floor(ids.length / pageSize)), pageSize, (key, n) => {
      const known = this.known.get(key)
      if (known) return known
      const page = pages[n]!
      // It was made behind another page with the same tokens as the known one.
      if (this.knownPages.has(page)) return undefined
      this.serial++
      const added = { page, key, scope, serial: this.serial }
      this.share(page)
      this.known.set(key, added)
      this.knownPages.add(page)
      return added
    })
  }

  /** The known pages that `ids` begins with, at most `most`; each gets one holder more. */
  recall(scope: string, ids: readonly number[], most: number, pageSize: number): number[] {
    const found = this.walk(scope, ids, Math.min(most, Math.floor(ids.length / pageSize)), pageSize, (key) =>
      this.known.get(key),
    )
    for (const page of found) this.share(page)
    return found
  }

  private walk(
    scope: string,
    ids: readonly number[],
    count: number,
    pageSize: number,
    find: (key: string, n: number) => Known | undefined,
  ): number[] {
    const chain: Known[] = []
    let before = scope
    for (let n = 0; n < count; n++) {
      const known = find(`${before}/${ids.slice(n * pageSize, (n + 1) * pageSize).join()}`, n)
      if (!known) break
      chain.push(known)
      before = String(known.serial)
    }
    // Deepest first, so that it is forgotten first.
    for (const known of chain.toReversed()) {
      this.known.delete(known.key)
      this.known.set(known.key, known)
    }
    return chain.map(({ page }) => page)
  }

  /** Forgets the known page that was used longest ago and that nobody else holds; false when there is none. */
  forgetOne(): boolean {
    for (const known of this.known.values()) {
      if (this.holders[known.page] !== 1) continue
      this.forget(known)
      return true
    }
    return false
  }

  /** Forgets the known pages of a scope. */
  forgetScope(scope: string): void {
    for (const known of [...this.known.values()]) if (known.scope === scope) this.forget(known)
  }

  private forget(known: Known): void {
    this.known.delete(known.key)
    this.knownPages.delete(known.page)
    this.release([known.page])
  }

  /** Pages that somebody holds, besides those that are only known. */
  get used(): number {
    let kept = 0
    for (const { page } of this.known.values()) if (this.holders[page] === 1) kept++
    return this.holders.length - 1 - this.free.length - kept
  }
}
