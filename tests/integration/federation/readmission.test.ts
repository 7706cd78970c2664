// A removed partner comes back, on a real repository over scripted planes: in order, as a new one, observed to be open.

import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import { performAct } from "../../../src/federation/containment/contain-or-restore.ts";
import { changeRun } from "../../../src/federation/offboarding/run/run-file.ts";
import { PLANE_NAMES, type PlaneName } from "../../../src/federation/plane-order.ts";
import { nextStep, planReadmission } from "../../../src/federation/readmission/next-step.ts";
import { NewIdentities, openReadmission } from "../../../src/federation/readmission/readmission.ts";
import type { WorkflowContext } from "../../../src/federation/readmission/rooms.ts";
import { loadRegistry } from "../../../src/federation/registry/load.ts";
import { retireAll } from "../../../src/federation/registry/partner.ts";
import type { Repository } from "../../../src/federation/repository/repository.ts";
import { evidenceItem } from "../../../src/records/format/evidence-item.ts";
import { editYaml, type YamlEdit } from "../../../src/runtime/edit-yaml.ts";
import { commitRegistry, LIGHTHOUSE, operatorGit } from "../../support/control-repository.ts";
import {
  APPROVAL,
  begunRemoval,
  FRESH,
  FRESHER,
  kept,
  ORGANISATION,
  readmission,
  SERVER,
  scriptedRooms,
} from "../../support/readmission.ts";
import { entryOf, OPEN, PARTNER, records, refusedBy, runAllSteps } from "./readmission-steps.ts";

/** Closes every plane of the sample partner as an operator does it by hand. */
async function closeAll(repository: Repository, edits: readonly YamlEdit[] = []): Promise<void> {
  const text = (await repository.read(await repository.requireHead(), ["registry"])).get(LIGHTHOUSE) ?? "";
  const closed = editYaml(text.replace(/: open$/gm, ": closed"), edits);
  await commitRegistry(repository, new Map([[LIGHTHOUSE, closed]]));
}

describe("re-admission workflow", () => {
  it("nextStep opens the five planes in the specification's order, one commit each, each proved before the next [RDM-1]", async (t) => {
    const { context, repository, parts } = await readmission(t);
    const before = await repository.requireHead();
    await openReadmission(context, OPEN);
    parts.applied.length = 0;
    const steps = await runAllSteps(context);
    assert.deepEqual(
      steps.map(({ plane, proved }) => [plane, proved]),
      ["transport", "rooms", "border", "card", "gateway"].map((plane) => [plane, true]),
    );
    assert.deepEqual(
      parts.applied.filter((plane, index) => parts.applied.indexOf(plane) === index),
      ["transport", "rooms", "border", "card", "gateway"],
    );
    assert.equal(steps.at(-1)?.done, true);
    const subjects = operatorGit(repository.path, "log", "--reverse", "--format=%s", `${before}..main`);
    assert.deepEqual(subjects.split("\n"), [
      `Open the re-admission of ${SERVER}`,
      ...PLANE_NAMES.map((plane, index) => `Open plane ${index + 1} (${plane}) to ${SERVER}`),
      `Complete the re-admission of ${SERVER}`,
    ]);
    const partner = await entryOf(repository);
    assert.ok(PLANE_NAMES.every((plane) => partner.planes[plane] === "open"));
    const after = await nextStep(context, PARTNER);
    assert.deepEqual([after.plane, after.done], [null, true], "nothing is left to do");
    assert.equal((await openReadmission(context, OPEN)).isNew, false, "nor is it opened a second time");
  });

  it("an agent for which no new key is brought stays without a pin, and keeps no plane from being opened [RDM-1]", async (t) => {
    const { context } = await readmission(t);
    await openReadmission(context, { ...OPEN, identities: { ...FRESH, agents: {} } });
    const steps = await runAllSteps(context);
    assert.equal(steps.at(-1)?.done, true, JSON.stringify(steps.at(-2)?.conditions));
    assert.deepEqual(steps.at(-1)?.readmission.stages.card?.not_applicable, ["agent_card_verified"]);
  });

  it("the records hold the approval, the retired identities and every item's digest [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    await openReadmission(context, OPEN);
    const steps = await runAllSteps(context);
    const [opened, completed] = await records(repository);
    assert.deepEqual(
      [opened?.act, opened?.approval, opened?.azp],
      ["opened", APPROVAL, "lighthouse-bridge-2"],
    );
    assert.deepEqual(opened?.retired, {
      card_keys: ["lighthouse-card-3"],
      clients: ["lighthouse-bridge"],
      server_keys: ["ed25519:a_Lh7Q"],
    });
    assert.deepEqual([completed?.act, completed?.rooms], ["completed", "new"]);
    const stages = steps.at(-1)?.readmission.stages ?? {};
    const observed = PLANE_NAMES.map((plane) => {
      const { proved_at: _, ...stage } = stages[plane] ?? {};
      return { plane, ...stage };
    });
    assert.deepEqual(completed?.planes, observed);
    assert.ok(completed?.planes.every(({ evidence }) => evidence.length > 0));
  });

  it("openReadmission retires a client with which a partner that was closed by hand had applied [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    const files = await repository.read(await repository.requireHead(), ["registry"]);
    const client = `  - {clientId: lighthouse-applicant, applicant: "${SERVER}", secret: {file: client-secrets/applicant}}\n`;
    const applied = files.get(ORGANISATION)?.replace(/^clients:\n/m, (line) => line + client) ?? "";
    await commitRegistry(repository, new Map([[ORGANISATION, applied]]));
    const identities = { ...FRESH, azp: "lighthouse-applicant" };
    await refusedBy("retired_client", openReadmission(context, { ...OPEN, identities }));
    await openReadmission(context, OPEN);
    const retired = ["lighthouse-bridge", "lighthouse-applicant"];
    assert.deepEqual((await entryOf(repository)).retired.clients, retired);
    assert.deepEqual((await records(repository))[0]?.retired.clients, retired);
  });

  it("openReadmission retires old pins and keys, and refuses them as new identities [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    const fresh = (changes: object) => NewIdentities.parse({ ...structuredClone(FRESH), ...changes });
    const open = (changes: object) => openReadmission(context, { ...OPEN, identities: fresh(changes) });
    await refusedBy("retired_client", open({ azp: "lighthouse-bridge" }));
    await refusedBy("retired_key", open({ serverKeys: ["ed25519:a_Lh7Q"] }));
    const old =
      (await entryOf(repository)).card.consumes["lighthouse-weather"]?.cardIdentity ?? assert.fail();
    const agents = (cardIdentity: object) => ({ agents: { "lighthouse-weather": { cardIdentity } } });
    await refusedBy("retired_key", open(agents(old)));
    const renamed = {
      keyId: "lighthouse-card-9",
      jwk: { kty: "EC", crv: "P-256", x: old.jwk.x, y: old.jwk.y },
    };
    const before = await repository.requireHead();
    await refusedBy("retired_key", open(agents(renamed)));
    await refusedBy("unknown_agent", open({ agents: { nobody: { cardIdentity: renamed } } }));
    await refusedBy("fresh_secret", open({ clientSecret: undefined }));
    assert.equal(await repository.head(), before, "nothing was committed");

    await openReadmission(context, OPEN);
    const partner = await entryOf(repository);
    assert.equal(partner.azp, "lighthouse-bridge-2");
    assert.deepEqual(partner.keyIds, { server: ["ed25519:a_New1"], card: ["lighthouse-card-4"] });
    assert.equal(partner.card.consumes["lighthouse-weather"]?.cardIdentity?.keyId, "lighthouse-card-4");
    assert.ok(
      PLANE_NAMES.every((plane) => partner.planes[plane] === "closed"),
      "opening opens no plane",
    );
  });

  it("openReadmission retires a key that another entry pins too by its ID alone [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    const files = await repository.read(await repository.requireHead(), ["registry"]);
    const { consumes } = parse(files.get(LIGHTHOUSE) ?? "").card;
    const edit = { path: ["card", "consumes", "weather"], value: consumes["lighthouse-weather"] };
    const other = "registry/partners/dredger.yaml";
    await commitRegistry(repository, new Map([[other, editYaml(files.get(other) ?? "", [edit])]]));
    await openReadmission(context, OPEN);
    const [opened] = await records(repository);
    assert.deepEqual((await entryOf(repository)).retired.cardKeys, [{ keyId: "lighthouse-card-3" }]);
    assert.deepEqual(opened?.retired.card_keys, ["lighthouse-card-3"]);
  });

  it("openReadmission refuses a new client that names the secret of the old one [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    const { card, gateway } = await entryOf(repository);
    const before = await repository.requireHead();
    const open = (fresh: object) =>
      openReadmission(context, {
        ...OPEN,
        identities: NewIdentities.parse({ ...structuredClone(FRESH), ...fresh }),
      });
    await refusedBy("fresh_secret", open({ clientSecret: gateway?.clientSecret }));
    const [given] = Object.values(FRESH.agents);
    const held = card.consumes["lighthouse-weather"]?.credentials ?? assert.fail();
    const ours = (more: object) => ({ agents: { "lighthouse-weather": { ...given, ...more } } });
    await refusedBy("fresh_secret", open(ours({ clientId: "harbour-2" })));
    await refusedBy("fresh_secret", open(ours({ clientId: "harbour-2", clientSecret: held.clientSecret })));
    assert.equal(await repository.head(), before, "nothing was committed");
    await open(ours({ clientId: "harbour-2", clientSecret: { file: "client-secrets/harbour-2" } }));
  });

  it("openReadmission refuses other identities for an open re-admission, and keeps the first [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    await openReadmission(context, OPEN);
    const head = await repository.head();
    const changed = openReadmission(context, { ...OPEN, identities: FRESHER });
    await assert.rejects(changed, /was opened with other identities/);
    assert.equal(await repository.head(), head);
    await runAllSteps(context);
    await assert.rejects(openReadmission(context, { ...OPEN, identities: FRESHER }), /with other identities/);
    assert.equal((await openReadmission(context, OPEN)).isNew, false);
  });

  it("the record of the end names the conditions that did not apply [RDM-1]", async (t) => {
    const { context: all, repository } = await readmission(t);
    const context: WorkflowContext = { ...all, parts: ["homeserver"] };
    await openReadmission(context, OPEN);
    await runAllSteps(context);
    const message = operatorGit(repository.path, "log", "-1", "--format=%b", "main");
    const left = [
      "rooms kept_rooms_hear_it",
      "rooms other_rooms_hear_it",
      "card in_force",
      "card agent_card_verified",
      "card card_published",
      "gateway in_force",
      "gateway may_invoke",
    ];
    for (const one of left) assert.ok(message.split("\n").includes(`  ${one}`), `${one} in ${message}`);
    assert.doesNotMatch(message, /planes were observed to be open\./);
    const [, completed] = await records(repository);
    assert.deepEqual(
      completed?.planes.flatMap(({ plane, not_applicable }) =>
        not_applicable.map((name) => `${plane} ${name}`),
      ),
      left,
    );
  });

  it("openReadmission refuses a partner with an open plane, and an approval that is no reference [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    const before = await repository.requireHead();
    await refusedBy("not_removed", openReadmission(context, { ...OPEN, partner: "pilot-station" }));
    await assert.rejects(
      openReadmission(context, { ...OPEN, approval: "approved by legal" }),
      /no reference/,
    );
    assert.equal(await repository.head(), before);
  });

  it("openReadmission refuses an approval that holds a secret or a person's address, and commits nothing of it [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    const before = await repository.requireHead();
    for (const approval of ["CHG-1:ghp_0123456789abcdefghij", "legal@example.org", "password=hunter2!"]) {
      await assert.rejects(openReadmission(context, { ...OPEN, approval }), (error) => {
        assert.ok(error instanceof DrawbridgeError && error.code === "usage", String(error));
        assert.match(error.message, /^--approval holds /);
        assert.ok(!`${error.message} ${error.hint}`.includes(approval));
        return true;
      });
    }
    assert.equal(await repository.head(), before);
  });

  it("openReadmission changes nothing with the same approval, and refuses another one [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    await openReadmission(context, OPEN);
    const head = await repository.head();
    assert.equal((await openReadmission(context, OPEN)).isNew, false);
    await assert.rejects(openReadmission(context, { ...OPEN, approval: "CHG-1" }), /with another approval/);
    assert.equal(await repository.head(), head);
  });

  it("nextStep does not prove a plane that is in force as state and enforced otherwise [RDM-1]", async (t) => {
    const { context, repository, parts } = await readmission(t);
    await openReadmission(context, OPEN);
    const runtime = parts.planes.transport;
    const closed = evidenceItem({
      ...{
        schema: "svc.federation.evidence_item.v1",
        plane: "transport",
        partner: SERVER,
        probe: "whitelist",
      },
      ...{
        vantage: "operator",
        subject: SERVER,
        layer: "homeserver",
        status: 200,
        reason: "not_in_whitelist",
      },
      ...{ references: [], at: "2026-01-02T03:04:05.000Z", duration_ms: null, verdict: "closed" },
    });
    const stale: WorkflowContext = {
      ...context,
      planes: { ...parts.planes, transport: { ...runtime, probe: async () => [closed] } },
    };
    for (let times = 0; times < 2; times++) {
      const step = await nextStep(stale, PARTNER);
      assert.deepEqual([step.plane, step.proved], ["transport", false]);
      assert.deepEqual(
        step.conditions.map(({ condition, verdict }) => [condition, verdict]),
        [
          ["in_force", "met"],
          ["whitelist_admits_partner", "not_met"],
        ],
      );
    }
    const commits = operatorGit(repository.path, "log", "--format=%s", "--grep=Readmission-Plane", "main");
    assert.deepEqual(
      commits.split("\n"),
      [`Open plane 1 (transport) to ${SERVER}`],
      "one commit, however often",
    );
    assert.equal((await nextStep(context, PARTNER)).proved, true, "and on, once it is enforced");
  });

  it("nextStep replaces kept rooms by new ones before plane 2 opens [RDM-1]", async (t) => {
    const rooms = scriptedRooms(kept("!a"), kept("!b", "no"), {
      ...kept("!c"),
      state: "replaced",
      replacement: "!c-new",
    });
    const { context, said, repository } = await readmission(t, rooms);
    await openReadmission(context, OPEN);
    await nextStep(context, PARTNER);
    const replace = rooms.replace;
    rooms.replace = async (...args) => {
      assert.equal((await entryOf(repository)).planes.rooms, "closed");
      return replace(...args);
    };
    const step = await nextStep(context, PARTNER);
    assert.deepEqual([step.plane, step.proved, rooms.replaced], ["rooms", true, ["!a", "!b"]]);
    assert.equal(step.readmission.rooms, "new");
    assert.match(said.join("\n"), /Rooms \(new\): 2 kept, 1 gone before\.\n {2}!a is replaced by a new room/);
  });

  it("nextStep with rooms reopen replaces and names only rooms whose memberships cannot be repaired [RDM-1]", async (t) => {
    const rooms = scriptedRooms(kept("!a"), kept("!b", "no"));
    const { context, said, repository, parts } = await readmission(t, rooms);
    await openReadmission(context, OPEN);
    const steps = await runAllSteps(context, "reopen");
    assert.deepEqual(rooms.replaced, ["!b"]);
    assert.match(said.join("\n"), /!a is opened again: the partner can read back what we said/);
    assert.match(said.join("\n"), /!b is replaced: the partner's server does not hold its bans/);
    const touched = steps.at(-1)?.readmission.touched;
    assert.deepEqual(
      touched?.map(({ room, state, repairable }) => [room, state, repairable]),
      [
        ["!a", "kept", "yes"],
        ["!b", "replaced", "no"],
      ],
      "that it could not be repaired stays known",
    );
    // A kept room is open only when its enforcement was asked for; files cannot say so.
    const [, second] = steps;
    assert.deepEqual(
      second?.conditions.map(({ condition, verdict }) => [condition, verdict]),
      [
        ["in_force", "met"],
        ["kept_rooms_hear_it", "unknown"],
        ["other_rooms_hear_it", "unknown"],
      ],
    );
    assert.equal((await entryOf(repository)).planes.border, "closed");
    parts.rooms.push("!a", "!other");
    const { conditions, proved } = await nextStep(context, PARTNER);
    assert.deepEqual([proved, conditions.map(({ verdict }) => verdict)], [true, ["met", "met", "met"]]);
  });

  it("nextStep with rooms reopen opens no room when the partner's server does not say which bans it has [RDM-1]", async (t) => {
    const rooms = scriptedRooms(kept("!a", "unknown"));
    const { context, repository } = await readmission(t, rooms);
    await openReadmission(context, OPEN);
    await nextStep(context, PARTNER);
    const step = await nextStep(context, { ...PARTNER, rooms: "reopen" });
    assert.deepEqual([step.proved, step.conditions[0]?.condition], [false, "memberships_can_be_repaired"]);
    assert.equal((await entryOf(repository)).planes.rooms, "closed");
    const other = await nextStep(context, { ...PARTNER, rooms: "new" });
    assert.deepEqual([other.proved, rooms.replaced], [true, ["!a"]]);
  });

  it("nextStep refuses when a proved plane was closed again, or the partner is contained [RDM-1]", async (t) => {
    const { context, repository, federation } = await readmission(t);
    await openReadmission(context, OPEN);
    await nextStep(context, PARTNER);
    await performAct(federation, "contain", "lighthouse");
    await refusedBy("closed_again", nextStep(context, PARTNER));
    await performAct(federation, "restore", "lighthouse");
    assert.equal((await nextStep(context, PARTNER)).plane, "rooms");
    const text = (await repository.read(await repository.requireHead(), ["registry"])).get(LIGHTHOUSE) ?? "";
    await commitRegistry(
      repository,
      new Map([[LIGHTHOUSE, text.replace("transport: open", "transport: closed")]]),
    );
    await refusedBy("closed_again", nextStep(context, PARTNER));
  });

  it("nextStep opens nothing after the end, also where this machine has forgotten how far it was [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    const { readmission: opened } = await openReadmission(context, OPEN);
    await runAllSteps(context);
    const text = (await repository.read(await repository.requireHead(), ["registry"])).get(LIGHTHOUSE) ?? "";
    await commitRegistry(repository, new Map([[LIGHTHOUSE, text.replace("card: open", "card: closed")]]));
    const head = await repository.requireHead();
    rmSync(context.state.file(`readmission/${opened.id}`, "progress.json"));
    await refusedBy("closed_again", nextStep(context, PARTNER));
    assert.equal(await repository.requireHead(), head);
  });

  it("nextStep proves a plane again that is open, where this machine has forgotten that it was opened [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    const { readmission: opened } = await openReadmission(context, OPEN);
    await nextStep(context, PARTNER);
    const head = await repository.requireHead();
    rmSync(context.state.file(`readmission/${opened.id}`, "progress.json"));
    const again = await nextStep(context, PARTNER);
    assert.deepEqual([again.plane, again.proved, await repository.requireHead()], ["transport", true, head]);
    assert.deepEqual((await nextStep(context, PARTNER)).plane, "rooms");
  });

  it("the record names the commit that opened a plane last, where an earlier one was taken back [RDM-1]", async (t) => {
    const { context, repository, parts } = await readmission(t);
    await openReadmission(context, OPEN);
    const silent = { ...parts.planes.transport, probe: async () => [] };
    const unproved = { ...context, planes: { ...parts.planes, transport: silent } };
    assert.equal((await nextStep(unproved, PARTNER)).proved, false);
    const first = await repository.requireHead();
    const text = (await repository.read(first, ["registry"])).get(LIGHTHOUSE) ?? "";
    await commitRegistry(
      repository,
      new Map([[LIGHTHOUSE, text.replace("transport: open", "transport: closed")]]),
    );
    const { readmission: found } = await nextStep(context, PARTNER);
    assert.notEqual(found.stages.transport?.revision, first);
    const subject = operatorGit(
      repository.path,
      "log",
      "-1",
      "--format=%s",
      found.stages.transport?.revision ?? "",
    );
    assert.match(subject, /^Open plane 1 \(transport\)/);
  });

  it("nextStep opens no plane while a removal runs, and after it another re-admission is needed, also where the clock was set back [RDM-1]", async (t) => {
    const { context, repository, clock } = await readmission(t);
    const now = () => new Date(clock.now()).toISOString();
    await openReadmission(context, OPEN);
    await clock.advance(-86_400_000);
    const removal = begunRemoval(context.state, now());
    await refusedBy("removal_open", nextStep(context, PARTNER));
    const files = await repository.read(await repository.requireHead(), ["registry"]);
    const all = retireAll(loadRegistry(files), await entryOf(repository));
    const retired = { path: ["retired"], value: structuredClone(all) };
    await closeAll(repository, [retired]);
    changeRun(removal, { ended: { how: "completed", reason: null, at: now() } });
    await refusedBy("removed_since", nextStep(context, PARTNER));
    assert.equal((await entryOf(repository)).planes.transport, "closed");
    await refusedBy("retired_client", openReadmission(context, { ...OPEN, approval: "CHG-2099" }));
    const again = await openReadmission(context, { ...PARTNER, approval: "CHG-2099", identities: FRESHER });
    assert.deepEqual([again.isNew, again.readmission.opened.approval], [true, "CHG-2099"]);
    const { clients } = (await entryOf(repository)).retired;
    assert.deepEqual(clients, ["lighthouse-bridge", "lighthouse-bridge-2"]);
    assert.equal((await nextStep(context, PARTNER)).plane, "transport");
  });

  it("openReadmission opens another once all planes were closed by hand, and not before [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    await openReadmission(context, OPEN);
    const another = { ...PARTNER, approval: "CHG-2099", identities: FRESHER };
    await nextStep(context, PARTNER);
    await assert.rejects(openReadmission(context, another), /with another approval/);
    await closeAll(repository);
    await refusedBy("closed_again", nextStep(context, PARTNER));
    assert.equal((await openReadmission(context, another)).isNew, true);
  });

  it("nextStep opens no plane where a removal has begun while rooms were looked at [RDM-1]", async (t) => {
    const rooms = scriptedRooms(kept("!a"));
    const { context, repository, clock } = await readmission(t, rooms);
    await openReadmission(context, OPEN);
    await nextStep(context, PARTNER);
    const { replace } = rooms;
    rooms.replace = async (...asked) => {
      begunRemoval(context.state, new Date(clock.now()).toISOString());
      return replace(...asked);
    };
    await assert.rejects(nextStep(context, PARTNER), {
      code: "guard_refused",
      message: /has not ended; no plane was opened \[removal_open\]$/,
    });
    assert.equal((await entryOf(repository)).planes.rooms, "closed");
  });

  it("a removal that was aborted before its first stage leaves a re-admission as it was [RDM-1]", async (t) => {
    const { context, clock } = await readmission(t);
    await openReadmission(context, OPEN);
    await clock.sleep(1_000);
    const openedAt = new Date(clock.now()).toISOString();
    const removal = begunRemoval(context.state, openedAt);
    rmSync(context.state.file(`offboarding/${removal.run}`, "stages"), { recursive: true });
    changeRun(removal, { ended: { how: "aborted", reason: "a_slip", at: openedAt } });
    assert.equal((await nextStep(context, PARTNER)).plane, "transport");
  });

  it("a removal that was aborted and has not closed every plane leaves a re-admission as it was [RDM-1]", async (t) => {
    const { context, clock } = await readmission(t);
    await openReadmission(context, OPEN);
    await nextStep(context, PARTNER);
    await clock.sleep(1_000);
    const at = new Date(clock.now()).toISOString();
    changeRun(begunRemoval(context.state, at), { ended: { how: "aborted", reason: "a_slip", at } });
    assert.equal((await nextStep(context, PARTNER)).plane, "rooms");
  });

  it("planReadmission shows each step's difference and its rooms, and changes nothing [RDM-1]", async (t) => {
    const { context, repository, parts } = await readmission(t, scriptedRooms(kept("!a")));
    await openReadmission(context, OPEN);
    await nextStep(context, PARTNER);
    const head = await repository.head();
    parts.applied.length = 0;
    const plan = await planReadmission(context, "lighthouse", undefined);
    const files = (plane: PlaneName) =>
      plan.steps.find((step) => step.plane === plane)?.files.map(({ path }) => path) ?? [];
    assert.deepEqual(files("transport"), [], "it is open already");
    assert.ok(files("border").includes("rendered/border/policy.json"));
    assert.ok(files("gateway").includes("rendered/gateway/clients.yaml"));
    const policy = plan.steps[2]?.files.find(({ path }) => path === "rendered/border/policy.json");
    assert.match(policy?.diff ?? "", new RegExp(`^\\+.*${SERVER}`, "m"));
    assert.deepEqual([plan.rooms, plan.touched.length], ["new", 1]);
    assert.deepEqual([await repository.head(), parts.applied], [head, []]);
  });

  it("openReadmission after a second removal retires what was pinned in between as well [RDM-1]", async (t) => {
    const { context, repository } = await readmission(t);
    await openReadmission(context, OPEN);
    await runAllSteps(context);
    await closeAll(repository);
    await refusedBy("retired_client", openReadmission(context, OPEN));
    const second = NewIdentities.parse({
      version: 1,
      azp: "lighthouse-bridge-3",
      clientSecret: { file: "client-secrets/lighthouse-bridge-3" },
    });
    const { isNew, readmission: again } = await openReadmission(context, { ...OPEN, identities: second });
    assert.equal(isNew, true);
    assert.deepEqual(again.opened.retired.clients, ["lighthouse-bridge", "lighthouse-bridge-2"]);
    assert.deepEqual(again.opened.retired.card_keys, ["lighthouse-card-3", "lighthouse-card-4"]);
    const { consumes } = (await entryOf(repository)).card;
    assert.equal(
      consumes["lighthouse-weather"]?.cardIdentity,
      undefined,
      "without a fresh key it has no pin",
    );
  });

  it("the re-admission that goes on is the one with the partner's client, also where the clock was set back since the one before [RDM-1]", async (t) => {
    const { context, repository, clock } = await readmission(t);
    await openReadmission(context, OPEN);
    await runAllSteps(context);
    await closeAll(repository);
    await clock.advance(-86_400_000);
    const identities = NewIdentities.parse({
      version: 1,
      azp: "lighthouse-bridge-3",
      clientSecret: { file: "client-secrets/lighthouse-bridge-3" },
    });
    const second = { ...OPEN, approval: "CHG-2042", identities };
    const { readmission: opened } = await openReadmission(context, second);
    assert.equal((await openReadmission(context, second)).readmission.id, opened.id);
    const { readmission: again, plane, proved } = await nextStep(context, { partner: OPEN.partner });
    assert.deepEqual([again.id, plane, proved], [opened.id, "transport", true]);
  });
});
