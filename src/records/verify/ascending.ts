/** Whether each value is greater than the one before, so that none stands twice. */
export function isAscending<T extends string | number>(values: readonly T[]): boolean {
  return values.every((value, index) => {
    const before = values[index - 1];
    return before === undefined || before < value;
  });
}
