// Rooms are worked on side by side within a bound, which a homeserver's one process can bear.

/** Runs `work` for each item, at most `width` at a time; the first failure ends it. */
export async function mapConcurrent<Item, Result>(
  items: readonly Item[],
  width: number,
  work: (item: Item) => Promise<Result>,
): Promise<readonly Result[]> {
  const results = new Array<Result>(items.length);
  let next = 0;
  let failed = false;
  const worker = async () => {
    while (next < items.length && !failed) {
      const index = next++;
      try {
        results[index] = await work(items[index] as Item);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const workers = await Promise.allSettled(Array.from({ length: Math.min(width, items.length) }, worker));
  for (const worker of workers) if (worker.status === "rejected") throw worker.reason;
  return results;
}
