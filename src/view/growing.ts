/** Columns that grow: numbers in one typed array that doubles, and names as numbers. Knows nothing of what they hold. */

type Numbers = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float64Array

export class NumberColumn<Values extends Numbers> {
  length = 0

  constructor(
    private readonly Kind: { new (length: number): Values },
    private values = new Kind(1024),
  ) {}

  push(value: number): void {
    if (this.length === this.values.length) {
      const larger = new this.Kind(this.values.length * 2)
      larger.set(this.values)
      this.values = larger
    }
    this.values[this.length++] = value
  }

  at(position: number): number {
    return this.values[position] as number
  }
}

/** Few different texts, many times. */
export class NameColumn {
  readonly names: string[] = []
  private readonly codes = new Map<string, number>()
  private readonly column = new NumberColumn(Uint32Array)

  push(name: string): void {
    let code = this.codes.get(name)
    if (code === undefined) {
      code = this.names.length
      this.codes.set(name, code)
      this.names.push(name)
    }
    this.column.push(code)
  }

  at(position: number): string {
    return this.names[this.column.at(position)] as string
  }

  codeAt(position: number): number {
    return this.column.at(position)
  }

  /** null for a name that never came. */
  codeOf(name: string): number | null {
    return this.codes.get(name) ?? null
  }
}
