// One organisation's planes, closed one at a time by its registry in a running lab, and looked at from outside
// by somebody whom the registry names. Invariants: only commits in the organisation's repository change
// anything, and its own reconciler applies them; what a look does not try is missing from what it found.
import assert from "node:assert/strict";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import { BRANCH } from "../../lab/configuration/control-repository.ts";
import type { MatrixUser } from "../../lab/matrix-user.ts";
import { personOf } from "../../lab/seed/seed-file.ts";
import { federationStatus, planesBehind } from "../../lab/status/federation.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { RoomId } from "../../src/domain/identifiers.ts";
import { violationOf } from "../../src/federation/evidence/observe-from-outside.ts";
import { PLANE_NAMES, type PlaneName } from "../../src/federation/plane-order.ts";
import { loadProbeConfig, type ProbeConfig } from "../../src/federation/probes/config.ts";
import { wasNotTried } from "../../src/federation/probes/finding.ts";
import { probeFromOutside } from "../../src/federation/probes/outside.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import { readSecret } from "../../src/runtime/secrets.ts";
import { PRIVATE, writeWhole } from "../../src/runtime/write-file.ts";
import { commitRegistry } from "./control-repository.ts";
import type { Questions } from "./lab-questions.ts";
import { eventually, type LabSession } from "./lab-session.ts";

const SOURCES = { clock: systemClock, random: systemRandom };
const IN_FORCE_MS = 60_000;
const AS_WANTED_MS = 40_000;

type Entry = Record<string, unknown>;

/** What each probe found: `open`, or the layer that refused and its reason. */
export type Found = Readonly<Record<string, string>>;

/** Somebody who is looked at org A as. */
export interface Onlooker {
  readonly organisation: "org-b" | "org-c";
  /** The client that its tokens carry. */
  readonly azp: string;
  /** A room of org A's with this onlooker's person and org A's own ghost in it. */
  readonly room: RoomId;
  readonly probes: ProbeConfig;
}

export class OnePlane {
  readonly #lab: LabSession;
  readonly #questions: Questions;

  constructor(lab: LabSession, questions: Questions) {
    this.#lab = lab;
    this.#questions = questions;
  }

  /** Edits files of org A's registry, by their name in it, and waits until every plane is in force. */
  async declare(edits: Readonly<Record<string, (entry: Entry) => Entry>>): Promise<void> {
    const repository = await Repository.open(this.#paths.controlRepository, BRANCH);
    const files = await repository.read(await repository.requireHead(), ["registry"]);
    const changes = Object.entries(edits).map(([name, edit]) => {
      const path = `registry/${name}.yaml`;
      return [path, stringify(edit(parse(files.get(path) ?? "{}") as Entry))] as const;
    });
    const revision = await commitRegistry(repository, new Map(changes));
    await eventually(
      "the reconciler applies it",
      async () => {
        const status = await federationStatus(this.#lab.lab, "org-a");
        return status.revision === revision && planesBehind(status).length === 0;
      },
      IN_FORCE_MS,
    );
  }

  /** Closes exactly these planes for a partner. */
  close(partner: string, ...closed: readonly PlaneName[]): Promise<void> {
    const planes = Object.fromEntries(
      PLANE_NAMES.map((plane) => [plane, closed.includes(plane) ? "closed" : "open"]),
    );
    return this.declare({ [`partners/${partner}`]: (entry) => ({ ...entry, planes }) });
  }

  /** Makes the onlooker's room; its person joins. Every plane must be open to it. */
  async onlooker(organisation: Onlooker["organisation"], azp: string): Promise<Onlooker> {
    const alice = this.#questions.personOf("org-a");
    const ghost = this.#questions.ghostOf("org-a", "org-a");
    const room = await alice.createRoom({ preset: "public_chat", visibility: "private", invite: [ghost] });
    await eventually("the ghost joins", async () => (await alice.members(room)).includes(ghost));
    const found = loadProbeConfig(this.#paths.probeFile(organisation));
    const probes: ProbeConfig = {
      ...found,
      target: { ...found.target, rooms: [room] },
      as: { ...found.as, client: await this.#holdingToken(found, organisation) },
      arrivalTimeout: 3_000,
    };
    const onlooker = { organisation, azp, room, probes };
    await this.enter(onlooker);
    return onlooker;
  }

  /** The onlooker's person joins its room. */
  async enter({ organisation, room }: Onlooker): Promise<void> {
    await eventually("the onlooker's person is in the room", async () => {
      const { status } = await this.#personOf(organisation).join(room, [this.#lab.lab.serverNames["org-a"]]);
      return status === 200;
    });
  }

  /** Looks until it finds what is wanted: a server that was refused asks again only after a while. */
  async finds(onlooker: Onlooker, wanted: Found): Promise<void> {
    const deadline = systemClock.now() + AS_WANTED_MS;
    for (;;) {
      const found = await this.#look(onlooker);
      try {
        assert.deepEqual(found, wanted);
        return;
      } catch (error) {
        if (systemClock.now() > deadline) throw error;
      }
    }
  }

  async #look({ probes, azp }: Onlooker): Promise<Found> {
    const partner = { serverName: probes.as.serverName, azp };
    const items = await probeFromOutside(probes, SOURCES, {
      violationOf: (eventId) => violationOf(this.#paths.violationsFile, partner, eventId),
    });
    const told = items
      .filter((item) => !wasNotTried(item))
      .map(({ probe, verdict, layer, reason }) => [
        probe,
        verdict === "open" ? "open" : `${verdict}: ${layer} ${reason}`,
      ]);
    return Object.fromEntries(told);
  }

  /** What became of a question of the onlooker's person to org A's own ghost. */
  async asks({ organisation, room }: Onlooker): Promise<string> {
    const asker = this.#personOf(organisation);
    const asked = await this.#questions.ask([room], "org-a", { publisher: "org-a", asker });
    const [row] = await this.#questions.ended(asked);
    return `${row?.state}: ${row?.terminal_stage} ${row?.terminal_reason}`;
  }

  #personOf(organisation: Onlooker["organisation"]): MatrixUser {
    return personOf(this.#lab.lab, this.#lab.seed, organisation, SOURCES);
  }

  get #paths() {
    return this.#lab.lab.paths.organisation("org-a");
  }

  /** The client with a token that was issued while it was let in, as a partner holds one. */
  async #holdingToken({ as, target, directory }: ProbeConfig, name: string) {
    const { client } = as;
    assert.ok(client !== undefined && target.tokenEndpoint !== undefined && target.audience !== undefined);
    const secret = readSecret(client.clientSecret, directory);
    const response = await fetch(target.tokenEndpoint, {
      method: "POST",
      headers: {
        authorization: `Basic ${Buffer.from(`${client.clientId}:${secret}`).toString("base64")}`,
      },
      body: new URLSearchParams({ grant_type: "client_credentials", resource: target.audience }),
    });
    assert.equal(response.status, 200);
    const { access_token: token } = (await response.json()) as { access_token: string };
    const file = join(this.#paths.federation, `held-${name}.token`);
    writeWhole(file, token, PRIVATE);
    return { ...client, heldToken: { file } };
  }
}
