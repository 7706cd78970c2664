// The commands about waiting work, as an operator runs them beside a bridge.

import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { ExitCode } from "../../../src/cli/lib/exit-codes.ts";
import { runCliHere } from "../../support/cli-in-process.ts";
import { arrivals, envelope, event, job, ledgerFixture, room } from "../../support/ledger.ts";
import { temporaryFolder } from "../../support/temporary.ts";

const INIT = [
  ...["bridge", "init", "--server-name", "a.test", "--homeserver-url", "http://127.0.0.1:8008"],
  ...["--database-env", "TEST_LEDGER_URL"],
];

describe("drawbridge delegation, envelope and room", () => {
  it("list, explain, cancel and retry what waits, and never print content [OPS-1]", async (t) => {
    const { url, admit, rows } = await ledgerFixture(t);
    const folder = join(temporaryFolder(t), "bridge");
    await runCliHere([...INIT, "--directory", folder]);
    const config = join(folder, "bridge.yaml");
    const drawbridge = (...words: string[]) =>
      runCliHere([...words, "--config", config], { env: { TEST_LEDGER_URL: url } });
    await admit([], arrivals(envelope("e1"), job("q2", { prompt: "the content" })));

    const since = "2026-01-01T00:00:00.000Z";
    const listed = await drawbridge("delegation", "list", "--json");
    assert.equal(listed.code, ExitCode.ok, listed.stderr);
    const [one] = JSON.parse(listed.stdout) as {
      id: string;
      waitsFor: string;
      behind: string;
      since: string;
    }[];
    assert.deepEqual([one?.waitsFor, one?.behind, one?.since], ["its_turn", event("e1"), since]);
    const inJson = async (what: string) => JSON.parse((await drawbridge(what, "list", "--json")).stdout);
    assert.deepEqual(await inJson("room"), [
      { room: room("r"), encrypted: false, delegations: 1, envelopes: 1, head: event("e1"), since },
    ]);
    const [waiting] = await inJson("envelope");
    assert.partialDeepStrictEqual(waiting, {
      event: event("e1"),
      waitsFor: "its_key",
      holdsRoom: true,
      since,
    });
    assert.equal((await drawbridge("envelope", "retry", event("e1"))).stdout, "due now\n");
    const shown = await drawbridge("room", "show", room("r"));
    assert.match(shown.stdout, /its turn +\$e1/);
    assert.match(shown.stdout, /its key/);
    assert.equal((await drawbridge("envelope", "cancel", event("e1"))).code, ExitCode.ok);
    assert.equal((await drawbridge("envelope", "cancel", event("e1"))).code, ExitCode.failed);
    const id = one?.id ?? "";
    assert.equal((await drawbridge("delegation", "retry", id)).stdout, "due now\n");
    assert.equal((await drawbridge("delegation", "cancel", id)).stdout, "canceled\n");
    const ended = await drawbridge("delegation", "show", id);
    assert.match(ended.stdout, /operator_canceled/);
    assert.equal((await drawbridge("delegation", "show", "no-such-value")).code, ExitCode.usage);
    for (const verb of ["show", "cancel", "retry"]) {
      for (const words of [
        ["delegation", verb, "999"],
        ["envelope", verb, event("other")],
      ]) {
        const none = await drawbridge(...words);
        assert.equal(none.code, ExitCode.usage, words.join(" "));
        assert.match(none.stderr, /^error: there is no such/, words.join(" "));
      }
    }
    assert.equal((await drawbridge("room", "show", room("other"))).code, ExitCode.usage);
    assert.doesNotMatch(listed.stdout + shown.stdout + ended.stdout, /content/);
    assert.deepEqual(await rows("SELECT state FROM bridge_delegations"), [{ state: "canceled" }]);
  });

  it("say whether the database is away or refuses the connection, and by which code [OPS-1]", async (t) => {
    const { url } = await ledgerFixture(t);
    const folder = join(temporaryFolder(t), "bridge");
    await runCliHere([...INIT, "--directory", folder]);
    const withUrl = (change: Partial<URL>) =>
      runCliHere(["room", "list", "--config", join(folder, "bridge.yaml")], {
        env: { TEST_LEDGER_URL: Object.assign(new URL(url), change).href },
      });
    const other = await withUrl({ pathname: "/no_such_database" });
    assert.equal(other.code, ExitCode.unavailable);
    assert.match(other.stderr, /^error: the database refuses the connection \(3D000\)$/m);
    assert.match(other.stderr, /^hint: Correct user, password and database name/m);
    const away = await withUrl({ port: "1" });
    assert.equal(away.code, ExitCode.unavailable);
    assert.match(away.stderr, /^error: the bridge's database cannot be reached \(ECONNREFUSED\)$/m);
  });
});
