/** The part of jStat that the report uses: the package brings no types. */
declare module 'jstat' {
  const jStat: {
    studentt: { inv(p: number, degreesOfFreedom: number): number }
    normal: {
      inv(p: number, mean: number, deviation: number): number
      cdf(x: number, mean: number, deviation: number): number
    }
    binomial: { cdf(successes: number, n: number, p: number): number }
  }
  export default jStat
}
