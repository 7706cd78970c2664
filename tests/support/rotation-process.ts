// One rotation of an agent's key, as a process of its own that tests can kill: real git, real files.
// Arguments: folder. Prints `begun`, and `done` when it is proved.
import { join } from "node:path";
import process from "node:process";
import { systemClock } from "../../src/domain/clock.ts";
import { rotateAgent } from "../../src/federation/agents/rotate.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import { openControl } from "./control-repository.ts";

const [folder = ""] = process.argv.slice(2);
const repository = await Repository.open(join(folder, "control"), "main");
const { federation } = await openControl(folder, repository, systemClock);
process.stdout.write("begun\n");
const parts = {
  fetch: async () => ({ fetched: false, failure: "unreachable", status: undefined }) as const,
  clock: systemClock,
};
const { complete } = await rotateAgent(federation, parts, {
  agent: "docs-qa",
  keyFile: join(folder, "secrets", "docs-qa.jwk"),
  cardFile: join(folder, "docs-qa", "agent-card.json"),
  keyId: "harbour-card-2",
  isLost: false,
  cardUrl: () => undefined,
});
process.stdout.write(complete ? "done\n" : "left\n");
