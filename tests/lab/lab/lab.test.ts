// One lab from its first start to its removal. The tests build on one another, in this order.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { labPaths } from "../../../lab/layout.ts";
import { MatrixUser } from "../../../lab/matrix-user.ts";
import { PROGRAMS } from "../../../lab/organisations.ts";
import { identityOf, processesOfLab } from "../../../lab/processes.ts";
import type { Attempt } from "../../../lab/proof/outsider-attempts.ts";
import { programsOf } from "../../../lab/status/collect.ts";
import type { FedStatus } from "../../../lab/status/schema.ts";
import { systemClock, systemRandom } from "../../../src/domain/clock.ts";
import type { RoomId, ServerName, UserId } from "../../../src/domain/identifiers.ts";
import { signedRequests } from "../../../src/federation/homeserver/signed-request.ts";
import { PLANE_NAMES } from "../../../src/federation/plane-order.ts";
import { Fed } from "../../support/lab-session.ts";

const fed = new Fed();
after(async () => {
  await fed.task("fed:down", "--purge");
  await fed.task("fed:down", "--purge", "--name", "two");
  fed.remove();
});

function pidsOf(status: FedStatus): Map<string, number> {
  const entries = Object.entries(status.organisations).flatMap(([name, organisation]) =>
    programsOf(organisation).map((program) => [`${name}/${program.name}`, program.pid] as const),
  );
  return new Map(
    [...entries, ["postgres", status.postgres.pid] as const].flatMap(([name, pid]) =>
      pid === null ? [] : [[name, pid] as const],
    ),
  );
}

const labId = () => JSON.parse(readFileSync(join(fed.state, "lab", "default", "lab.json"), "utf8")).id;

function personOf(status: FedStatus, organisation: "org-a" | "org-b" | "org-c"): MatrixUser {
  const { clientUrl, users } = status.organisations[organisation];
  assert.ok(users[0] !== undefined);
  return new MatrixUser(clientUrl, users[0].userId as UserId, users[0].accessToken, {
    clock: systemClock,
    random: systemRandom,
  });
}

describe("the lab", () => {
  it("fed:up brings up three organisations from nothing, and its proof holds [LAB-1]", async () => {
    const proof = await fed.up();
    assert.equal(proof.found, "started");
    assert.deepEqual(proof.failures, []);
    for (const [from, other] of [
      ["org-a", "org-b"],
      ["org-b", "org-a"],
    ] as const) {
      const { views, gateway, audit } = proof.asked[from];
      assert.equal(audit.terminal_reason, "answered");
      assert.equal(gateway?.azp, `${from}-bridge`);
      assert.ok((views[from].text ?? "").length > 20);
      assert.equal(views[from].text, views[other].text);
      assert.deepEqual(views[from].eventIds, views[other].eventIds);
    }
    assert.match(proof.asked["org-a"].views["org-a"].text ?? "", /VHF channel 12/);
  });

  it("the status names everything that a foreign client needs, and its tokens are valid [LAB-1]", async () => {
    const status = await fed.status();
    assert.equal(status.healthy, true);
    for (const organisation of ["org-a", "org-b", "org-c"] as const) {
      const answer = await personOf(status, organisation).request("GET", "/account/whoami");
      assert.equal(answer.body["user_id"], status.organisations[organisation].users[0]?.userId);
    }
    for (const { configFile, outputFile } of Object.values(status.organisations).flatMap(programsOf)) {
      assert.ok(existsSync(configFile) && existsSync(outputFile));
    }
    assert.match(
      readFileSync(`/proc/${status.organisations["org-a"].gateway?.pid}/cmdline`, "utf8"),
      /envoy/,
    );
  });

  it("secrets of the lab are readable by this user alone", async () => {
    const paths = labPaths(join(fed.state, "lab", "default"));
    const status = await fed.status();
    const secrets = [
      paths.seed,
      paths.controlToken,
      paths.caKey,
      ...Object.values(status.organisations).flatMap((organisation) => [
        organisation.homeserver.configFile,
        organisation.homeserver.signingKeyFile,
        ...organisation.clients.map((client) => client.secretFile),
      ]),
      paths.organisation("org-a").registration,
      paths.organisation("org-a").agentKey,
      paths.organisation("org-a").bridgeSecret("database-url"),
    ];
    for (const file of secrets) assert.equal(statSync(file).mode & 0o077, 0, file);
  });

  it("the first user of an organisation makes a room, invites its own ghost and is answered", async () => {
    const status = await fed.status();
    const person = personOf(status, "org-a");
    const ghost = status.organisations["org-a"].bridge?.ghosts[0]?.userId ?? "";
    const roomId = await person.createRoom({ preset: "private_chat", invite: [ghost] });
    await eventually(async () => (await person.members(roomId)).includes(ghost));
    const { next } = await person.sync(roomId, undefined, 0);
    await person.send(roomId, {
      msgtype: "m.text",
      body: "How is a key rotated?",
      "m.mentions": { user_ids: [ghost] },
    });
    let position = next;
    await eventually(async () => {
      const synced = await person.sync(roomId, position, 1_000);
      position = synced.next;
      return synced.events.some((event) => event.sender === ghost && event.type === "m.room.message");
    });
  });

  const OBSERVED: Readonly<Record<Attempt, readonly (number | string | undefined)[]>> = {
    federation_send: [403, "M_FORBIDDEN"],
    join: [403, "M_FORBIDDEN"],
    room_acl: ["denied", undefined],
    border: ["denied", "server_not_allowed"],
    forged_card: ["rejected", "signature_invalid"],
    token: [401, "invalid_client"],
    foreign_token: [401],
    unadmitted_client: [403],
  };

  it("org-c is refused on every plane of A and of B, and the received code is shown [NEG-1]", async () => {
    const { refusals } = await fed.up();
    assert.equal(refusals.length, 16);
    for (const { attempt, received, code } of refusals) {
      const answer = OBSERVED[attempt];
      assert.deepEqual([received, ...(answer.length > 1 ? [code] : [])], answer, attempt);
    }
  });

  it("the summary shows the partner on all five planes, each answered by the part that admits it [LAB-1]", async () => {
    const { passages } = await fed.up();
    for (const at of ["org-a", "org-b"] as const) {
      assert.deepEqual([...new Set(passages[at].map(({ plane }) => plane))].sort(), [...PLANE_NAMES].sort());
      assert.deepEqual(
        passages[at].filter(({ verdict }) => verdict !== "open"),
        [],
      );
    }
  });

  it("the request that org-c is refused is accepted when a partner signs it [NEG-1]", async (t) => {
    const { organisations } = await fed.status();
    const [from, to] = [organisations["org-b"], organisations["org-a"]];
    const requests = signedRequests({
      name: from.serverName as ServerName,
      signingKey: readFileSync(from.homeserver.signingKeyFile, "utf8"),
      proxyUrl: from.connectProxy,
      ca: readFileSync(from.caFile, "utf8"),
    });
    t.after(() => requests.close());
    const answer = await requests.request(
      to.serverName as ServerName,
      `/_matrix/federation/v1/send/${systemRandom.bytes(8).toString("hex")}`,
      { origin: from.serverName, origin_server_ts: systemClock.now(), pdus: [], edus: [] },
    );
    assert.equal(answer.status, 200);
  });

  it("a second fed:up finds the running lab; two at the same moment agree [LAB-1]", async () => {
    const before = pidsOf(await fed.status());
    const proofs = await Promise.all([fed.up(), fed.up()]);
    for (const { found, failures } of proofs) {
      assert.equal(found, "running");
      assert.deepEqual(failures, []);
    }
    assert.deepEqual(pidsOf(await fed.status()), before);
  });

  it("in the encrypted rooms each organisation's person reads the answers of both agents [ENC-7]", async () => {
    for (const [from, to] of [
      ["org-b", "org-a"],
      ["org-b", "org-b"],
      ["org-a", "org-b"],
    ] as const) {
      const result = await fed.ask(
        "--encrypted",
        "--from",
        from,
        "--to",
        to,
        "--timeout",
        "90s",
        "What is it?",
      );
      assert.equal(result.audit.outcome, "completed");
      assert.equal(result.room.encrypted, true);
      for (const { encrypted, text } of Object.values(result.views)) {
        assert.equal(encrypted, true);
        assert.equal(text, result.views[from].text);
      }
    }
  });

  it("no message crosses a cut link, and messages sent meanwhile arrive when it is healed", async () => {
    await fed.good("fed:link", "cut", "org-a", "org-b");
    const status = await fed.until((now) => now.cutLinks.length === 1);
    const roomId = (status.organisations["org-b"].rooms[0]?.roomId ?? "") as RoomId;
    const [sender, reader] = [personOf(status, "org-b"), personOf(status, "org-a")];
    const { next } = await reader.sync(roomId, undefined, 0);
    const eventId = await sender.send(roomId, { msgtype: "m.text", body: "said while the link was cut" });
    const quiet = await reader.sync(roomId, next, 2_000);
    assert.ok(quiet.events.every((event) => event.event_id !== eventId));
    await fed.good("fed:link", "heal", "org-a", "org-b");
    let position = quiet.next;
    await eventually(async () => {
      const synced = await reader.sync(roomId, position, 1_000);
      position = synced.next;
      return synced.events.some((event) => event.event_id === eventId);
    });
  });

  it("fed:up heals a link that was left cut [LAB-1]", async () => {
    await fed.good("fed:link", "cut", "org-b", "org-a");
    assert.deepEqual((await fed.up()).failures, []);
    assert.deepEqual((await fed.status()).cutLinks, []);
  });

  it("a running lab gains the witness, whom the registries of A and B name already, and keeps it [LAB-1]", async () => {
    const before = pidsOf(await fed.status());
    const proof = await fed.up("--with-witness");
    assert.equal(proof.found, "running");
    assert.deepEqual(proof.failures, []);
    const status = await fed.status();
    assert.equal(status.healthy, true);
    const after = pidsOf(status);
    assert.ok(after.delete("org-d/homeserver"));
    assert.deepEqual(after, before);
    const witness = status.organisations["org-d"];
    assert.ok(witness !== undefined);
    assert.deepEqual(
      [witness.bridge, witness.gateway, witness.issuer, witness.clients.length],
      [undefined, undefined, undefined, 0],
    );
    assert.equal(witness.users.length, 3);
    // In its room and in both shared ones, plain and encrypted, all three organisations' people are.
    assert.deepEqual(
      witness.rooms.map(({ encrypted }) => encrypted),
      [false, false, false, true, true, true],
    );
    const { users, clientUrl } = witness;
    assert.ok(users[0] !== undefined);
    const sources = { clock: systemClock, random: systemRandom };
    const alice = new MatrixUser(clientUrl, users[0].userId as UserId, users[0].accessToken, sources);
    for (const { roomId } of witness.rooms) {
      const servers = (await alice.members(roomId as RoomId)).map((member) => member.split(":")[1]);
      assert.deepEqual([...new Set(servers)].sort(), ["org-a.test", "org-b.test", "org-d.test"]);
    }
  });

  for (const victim of [...PROGRAMS, "postgres"] as const) {
    it(`${victim} killed with SIGKILL is started again, and questions are answered [LAB-1]`, async () => {
      const name = victim === "postgres" ? victim : `org-a/${victim}`;
      const pid = pidsOf(await fed.status()).get(name);
      assert.ok(pid !== undefined);
      process.kill(pid, "SIGKILL");
      await fed.until((status) => {
        const now = pidsOf(status).get(name);
        return status.healthy && now !== undefined && now !== pid;
      });
      assert.equal((await fed.ask("--timeout", "90s", "What is recorded?")).audit.outcome, "completed");
    });
  }

  it("fed:up ends the programs that a killed supervisor left, and repairs the lab [LAB-1]", async () => {
    const before = await fed.status();
    const old = [...pidsOf(before).values()].map(identityOf);
    assert.ok(before.supervisor.pid !== null);
    process.kill(before.supervisor.pid, "SIGKILL");
    const proof = await fed.up();
    assert.equal(proof.found, "repaired");
    assert.deepEqual(proof.failures, []);
    for (const identity of old) {
      assert.ok(identity !== undefined);
      assert.notDeepEqual(identityOf(identity.pid), identity, `process ${identity.pid} is still there`);
    }
  });

  it("fed:down ends only its own programs: a second lab and a look-alike go on [LAB-1]", async (t) => {
    const second = await fed.up("--name", "two");
    assert.deepEqual(second.failures, []);
    const first = await fed.status();
    const config = first.organisations["org-a"].homeserver.configFile;
    const similar = spawn(
      process.execPath,
      ["-e", "setInterval(() => {}, 1000)", "synapse.app.homeserver", "--config-path", config],
      { stdio: "ignore", detached: true },
    );
    t.after(() => similar.kill("SIGKILL"));
    await once(similar, "spawn");

    await fed.good("fed:down", "--name", "two", "--purge");
    assert.deepEqual(pidsOf(await fed.status()), pidsOf(first));
    assert.equal(existsSync(join(fed.state, "lab", "two")), false);

    await fed.good("fed:down");
    assert.deepEqual(processesOfLab(labId()), []);
    assert.equal(similar.exitCode, null);
    assert.equal(similar.signalCode, null);
  });

  it("data outlive fed:down, and an edited file is kept unless the registry renders it [LAB-1]", async () => {
    const before = await fed.status();
    const { agentsFile = "", configFile = "" } = before.organisations["org-a"].bridge ?? {};
    for (const file of [agentsFile, configFile]) appendFileSync(file, "# edited by hand\n");
    const { code, stderr } = await fed.task("fed:up");
    assert.equal(code, 0, stderr);
    assert.ok(stderr.includes(`Changed since the lab wrote it, left as it is: ${configFile}`));
    assert.ok(stderr.includes(`Edited by hand, now as the registry says: ${agentsFile}`));
    const now = await fed.status();
    assert.match(readFileSync(configFile, "utf8"), /# edited by hand\n$/);
    assert.doesNotMatch(readFileSync(agentsFile, "utf8"), /edited by hand/);
    for (const organisation of ["org-a", "org-b"] as const) {
      assert.deepEqual(now.organisations[organisation].rooms, before.organisations[organisation].rooms);
      assert.deepEqual(now.organisations[organisation].users, before.organisations[organisation].users);
    }
  });

  it("fed:down --purge leaves neither process nor file [LAB-1]", async () => {
    const { postgres, directory } = await fed.status();
    const id = labId();
    await fed.good("fed:down", "--purge");
    assert.deepEqual(processesOfLab(id), []);
    assert.equal(existsSync(directory), false);
    assert.equal(existsSync(postgres.dataDirectory ?? directory), false);
    const { code, stderr } = await fed.task("fed:status");
    assert.equal(code, 1);
    assert.match(stderr, /there is no lab default/);
  });

  async function eventually(isSo: () => Promise<boolean>, timeoutMs = 30_000): Promise<void> {
    const deadline = systemClock.now() + timeoutMs;
    while (!(await isSo())) {
      assert.ok(systemClock.now() < deadline, "it did not happen in time");
      await systemClock.sleep(50);
    }
  }
});
