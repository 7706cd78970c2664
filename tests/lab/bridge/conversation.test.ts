// Ten turns of a conversation between two organisations, in a plain and in an encrypted room at once: undisturbed, from
// which a page of the documentation is written; and on two bridge processes of which one is killed at each turn.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { after, describe, it, type TestContext } from "node:test";
import { parse, stringify } from "yaml";
import { withEncryptingUsers } from "../../../lab/encrypting-user/both.ts";
import { ghostFor } from "../../../lab/endpoints.ts";
import { SOURCES } from "../../../lab/lab.ts";
import { freePort } from "../../../lab/ports.ts";
import { personOf, requireRoom } from "../../../lab/seed/seed-file.ts";
import { a2aMessageId } from "../../../src/bridge/ledger/prompts.ts";
import type { RoomId } from "../../../src/domain/identifiers.ts";
import { assertGolden } from "../../support/golden.ts";
import { LAB_RUN } from "../../support/kills.ts";
import { eventually, LabSession } from "../../support/lab-session.ts";
import { startLoadBalancer } from "../../support/load-balancer.ts";
import { cliMain, type Running, start } from "../../support/temporary.ts";
import { ENDS, LabConversation, SAID_ONCE, TEN_TURNS, transcriptOf } from "./conversation-turns.ts";

const lab = await LabSession.start();
after(() => lab.end());

const FROM = "org-a";
const PUBLISHER = "org-b";
const BRIDGE = `${FROM}/bridge` as const;
const GHOST = ghostFor(lab.lab, FROM, PUBLISHER);

/** Each pattern is found, behind the one before. */
function assertInOrder(text: string, patterns: readonly RegExp[]): void {
  let from = 0;
  for (const pattern of patterns) {
    const at = text.slice(from).search(pattern);
    assert.ok(at >= 0, `${pattern} is not in:\n${text.slice(from)}`);
    from += at + 1;
  }
}

interface Disturbance {
  /** Called before a turn's messages are sent, and when they were. */
  readonly before: () => Promise<void>;
  readonly sent: (turn: number) => Promise<void>;
}

/** Has the ten turns in both forms of an organisation's room. */
async function haveTenTurns(
  createdBy: typeof FROM | typeof PUBLISHER,
  disturbance?: Disturbance,
): Promise<readonly [plain: LabConversation, encrypted: LabConversation]> {
  const people = [personOf(lab.lab, lab.seed, FROM), personOf(lab.lab, lab.seed, PUBLISHER)] as const;
  const roomOf = (form: "plain" | "encrypted") => requireRoom(lab.seed, createdBy, form).roomId as RoomId;
  return await withEncryptingUsers(lab.lab, lab.seed, FROM, SOURCES, async (encrypting) => {
    const conversations = [
      await LabConversation.begin(...people, roomOf("plain"), GHOST),
      await LabConversation.begin(encrypting[FROM], encrypting[PUBLISHER], roomOf("encrypted"), GHOST),
    ] as const;
    for (const [index, { say, outcome }] of TEN_TURNS.entries()) {
      await disturbance?.before();
      await Promise.all(conversations.map(say));
      await disturbance?.sent(index + 1);
      await Promise.all(conversations.map(outcome));
    }
    await Promise.all(conversations.map(assertComplete));
    assert.ok(conversations[1].isSealed());
    return conversations;
  });
}

/** Everything was said once, seen by both organisations, and done once by the agent. */
async function assertComplete(conversation: LabConversation): Promise<void> {
  for (const viewer of ["asker", "partner"] as const) {
    const said = conversation.said(viewer).filter(({ kind }) => kind !== "status" && kind !== "edit");
    const counts = Object.fromEntries(
      Object.keys(SAID_ONCE).map((kind) => [kind, said.filter((one) => one.kind === kind).length]),
    );
    assert.deepEqual(counts, SAID_ONCE, JSON.stringify(said, null, 1));
    assert.equal(said.length, 11, "nothing else");
  }
  const rows = await eventually("all have ended", async () => {
    const found = await lab.rows<{ event: string; reason: string | null }>(
      FROM,
      "SELECT matrix_event_id AS event, terminal_reason AS reason FROM bridge_delegations WHERE matrix_event_id = ANY ($1) ORDER BY room_seq",
      [conversation.own.map(({ event }) => event)],
    );
    return found.every(({ reason }) => reason !== null) && found;
  });
  assert.deepEqual(
    rows.map(({ reason }) => reason),
    ENDS,
  );
  const folder = join(lab.lab.paths.organisation(PUBLISHER).agent, "tasks");
  const tasks = readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .map((name) => readFileSync(join(folder, name), "utf8"));
  for (const { event } of rows) {
    assert.equal(tasks.filter((task) => task.includes(a2aMessageId(event as never, GHOST))).length, 1);
  }
}

const PAGE = "../../docs/reference/conversation.md";
const INTRODUCTION = `# A conversation with an agent

Ten turns in a room that two organisations share: Alice of organisation A asks the agent of organisation B, which answers
from the handbook of a harbour. Written from a run on real servers by \`tests/lab/bridge/conversation.test.ts\`
(\`./task test:lab bridge/conversation --update\`). What people can write is described
[for people in the rooms](../operating/for-people-in-rooms.md). The words are the same in a plain and in an encrypted room.
Of an edited message the form that it was sent with comes first. \`limits.inputWait\` was 20 s.
`;

describe("a conversation of ten turns between two organisations", () => {
  it("has two questions of the agent, a cancellation and a wait that runs out, alike in a plain and in an encrypted room [DEL-6]", async () => {
    await lab.configure(FROM, { limits: { inputWait: "20s" } });
    const [plain, encrypted] = (await haveTenTurns(PUBLISHER)).map((one) => transcriptOf(one, TEN_TURNS));
    assert.equal(encrypted, plain);
    assertGolden(PAGE, `${INTRODUCTION}${plain}`);
  });

  for (const form of ["plain", "encrypted"] as const) {
    it(`is held by fed:ask --chat with lines from a pipe, in the ${form} room [LAB-1]`, async () => {
      const flags = form === "encrypted" ? ["--encrypted"] : [];
      const printed = await lab.chat(
        [
          "Let me choose a section about fees",
          "2",
          "Survey the documents about tides",
          "!cancel",
          "!help",
          "How much clearance is under the closed span?",
        ],
        ...["--from", FROM, "--room", PUBLISHER, ...flags],
      );
      assertInOrder(printed, [
        /^> Survey the documents about tides\n/m,
        /^· The agent is working on this question\./m,
        /^> !cancel\n/m,
      ]);
      // Of which questions there is a status message depends on how busy the machine is.
      assertInOrder(printed.replaceAll(/^· .*\n(?: {2}.*\n)*/gm, ""), [
        /^@alice:org-a\S* asks @agent_org-b-docs-qa:org-a/,
        /^> Let me choose a section about fees\n\? Which section do you want to read\?\n {2}\n {2}1/m,
        /^> 2\n.*Opening fee\*\*\n\n> An opening on the hour is free\./m,
        /^> Survey the documents about tides\n> !cancel\n! I have canceled this question/m,
        /^> !help\n! - Mention an agent/m,
        /^> How much clearance.*\n.*Clearance under the closed span\*\*\n\n> The closed span leaves 4\.20 metres/m,
      ]);
      assert.ok(!printed.includes("\u001b"), "no escape sequences without a terminal");
    });
  }

  // Random faults, of which there is a short run too, kill bridges in conversations as well.
  if (process.env[LAB_RUN] !== "short") {
    it("is the same when one of two bridge processes is killed at each turn [DEL-6] [DEL-9]", async (t) => {
      await haveTenTurns(FROM, await twoBridges(t));
    });
  }
});

/** A second process on the database of org A's bridge, and a proxy before both. */
async function twoBridges(t: TestContext): Promise<Disturbance> {
  const configFile = lab.lab.paths.organisation(FROM).bridgeConfig;
  const config = parse(readFileSync(configFile, "utf8"));
  const [first, second, observe] = [await freePort(), await freePort(), await freePort()];
  await lab.unit("stop", BRIDGE);
  await startLoadBalancer(t, config.listen.port, { ports: [first, second], turn: 0, failed: 0 });
  // Long enough that the agent's first question is answered however busy the machine is.
  await lab.configure(FROM, { limits: { inputWait: "90s" }, listen: { port: first } });
  const otherFile = join(dirname(configFile), "bridge-2.yaml");
  const changed = parse(readFileSync(configFile, "utf8"));
  writeFileSync(otherFile, stringify({ ...changed, listen: { port: second }, observe: { port: observe } }));
  const spawn = () => start(process.execPath, [cliMain(), "bridge", "--config", otherFile]);
  let other: Running = spawn();
  t.after(async () => {
    other.child.kill("SIGKILL");
    await other.finished;
  });
  let restarts = (await lab.unitStatus(BRIDGE)).restarts;
  const isReady = async (port: number) =>
    await fetch(`http://127.0.0.1:${port}/readyz`).then(
      (answer) => answer.ok,
      () => false,
    );
  return {
    before: async () => {
      await eventually("both processes are ready", async () => {
        const unit = await lab.unitStatus(BRIDGE);
        return unit.restarts >= restarts && unit.state === "ready" && (await isReady(observe));
      });
    },
    sent: async (turn) => {
      if (turn % 2 === 1) {
        restarts += 1;
        await lab.unit("kill", BRIDGE);
        return;
      }
      other.child.kill("SIGKILL");
      await other.finished;
      other = spawn();
    },
  };
}
