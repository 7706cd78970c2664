// A purge on a real homeserver, as a process of its own that tests can kill. Its one argument is JSON: the parts of
// federation.yaml that a purge uses, the state folder, the run, and the digest of the dry run. Prints each step as
// it begins, and `done`.
import process from "node:process";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { FederationConfig } from "../../src/federation/config.ts";
import { runPurge } from "../../src/federation/offboarding/duties/purge.ts";
import { findRun } from "../../src/federation/offboarding/run/run.ts";
import { StateFolder } from "../../src/federation/state/folder.ts";

const { config, state, run, digest } = JSON.parse(process.argv[2] ?? "") as {
  readonly config: FederationConfig;
  readonly state: string;
  readonly run: string;
  readonly digest: string;
};
const say = (line: string) => process.stdout.write(`${line}\n`);
const context = { config, federation: { clock: systemClock }, say };
await runPurge(context, findRun(StateFolder.open(state, systemRandom), run), digest);
say("done");
