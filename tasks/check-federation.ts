// check:federation: the offline check at work, on a sample organisation that is right and on mistakes planted
// in it. Needs no server.
import { checkRepository } from "../src/federation/work-tree/check.ts";
import { outcomeOf, PLANTED_MISTAKES, sampleTree } from "../tests/support/planted-mistakes.ts";

export async function checkFederation(): Promise<number> {
  const { registry, rendered } = sampleTree();
  let failures = 0;
  for (const { name, result, found } of checkRepository(registry, rendered)) {
    if (result !== "ok") failures++;
    process.stdout.write(
      `${result.padEnd(8)} ${name}\n${found.map((line) => `         ${line}\n`).join("")}`,
    );
  }
  for (const mistake of PLANTED_MISTAKES) {
    const missed = outcomeOf(mistake);
    if (missed !== undefined) failures++;
    process.stdout.write(`${missed === undefined ? "caught  " : "MISSED  "} ${mistake.what}\n`);
    if (missed !== undefined) process.stdout.write(`         ${missed}\n`);
  }
  return failures === 0 ? 0 : 1;
}
