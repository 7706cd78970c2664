// Loading a registry: every problem of every file at once, each with file, line, rule and hint.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { loadRegistry, type StoredFile } from "../../../../src/federation/registry/load.ts";
import type { Partner } from "../../../../src/federation/registry/partner.ts";
import { RegistryError } from "../../../../src/federation/registry/problems.ts";
import { problemsOf, registryFiles, withLine, withText } from "../../../support/sample-files.ts";

const ORGANISATION = "registry/organisation.yaml";
const LIGHTHOUSE = "registry/partners/lighthouse.yaml";
const PILOTS = "registry/partners/pilot-station.yaml";

/** What is found, as `file:line path rule`. */
function found(changes: ReadonlyMap<string, string | null>): string[] {
  return problemsOf(changes).map(({ file, line, path, rule }) => `${file}:${line} ${path} ${rule}`);
}

describe("loadRegistry", () => {
  it("partners are loaded sorted by server name, each with its defaults [REG-1]", () => {
    const { partners } = loadRegistry(registryFiles());
    assert.deepEqual(
      partners.map(({ name }) => name),
      ["dredger", "lighthouse", "pilot-station", "salvage"],
    );
    const { partner } = partners[2] ?? assert.fail();
    assert.deepEqual(partner.planes, {
      transport: "open",
      rooms: "open",
      border: "open",
      card: "open",
      gateway: "open",
    });
    assert.equal(partner.contained, false);
    assert.equal(partner.rooms.whenRemoved, "replace");
    assert.equal(partner.gateway, undefined);
  });

  it("an unknown key is refused on its own line [REG-1]", () => {
    assert.deepEqual(found(withLine(PILOTS, 4, "containd: true")), [`${PILOTS}:4 containd schema`]);
    assert.deepEqual(found(withLine(ORGANISATION, 6, "  keyServers: []")), [
      `${ORGANISATION}:6 transport.keyServers schema`,
    ]);
  });

  it("all errors of all files are reported at once, each with its hint [REG-1]", () => {
    const changes = new Map([
      ...withText(ORGANISATION, "inviteRule: allow_listed", "inviteRule: everybody"),
      ...withText(LIGHTHOUSE, "classification: confidential", "classification: secretive"),
      ...withText(PILOTS, "serverName: pilots.example\n", ""),
      ["registry/partners/Gull.yaml", "version: 1\n"] as const,
      ["registry/partners/gull.yml", "version: 1\n"] as const,
      ["registry/partner/gull.yaml", "version: 1\n"] as const,
    ]);
    assert.deepEqual(found(changes), [
      `${ORGANISATION}:10 border.inviteRule schema`,
      "registry/partner/gull.yaml:1  file_name",
      "registry/partners/Gull.yaml:1  file_name",
      "registry/partners/gull.yml:1  file_name",
      `${LIGHTHOUSE}:4 classification schema`,
      `${PILOTS}:1 serverName schema`,
    ]);
    for (const { hint } of problemsOf(changes)) assert.match(hint, /^[A-Z].+[.;]?/);
  });

  it("a server's key is named by a key ID of Matrix [REG-1]", () => {
    const named = (id: string) => found(withText(LIGHTHOUSE, '"ed25519:a_Lh7Q"', `"${id}"`));
    assert.deepEqual(named("ed25519:a_2"), []);
    for (const id of ["foo", "ed25519:", "ed25519:a b"]) {
      assert.ok(named(id).includes(`${LIGHTHOUSE}:8 keyIds.server.0 schema`), id);
    }
  });

  it("a registry without organisation.yaml is refused, and the missing file is named [REG-1]", () => {
    assert.deepEqual(found(new Map([[ORGANISATION, null]])), [`${ORGANISATION}:1  organisation_missing`]);
  });

  it("an error is one line of place and problem, and one line with a hint [REG-1]", () => {
    assert.throws(
      () => loadRegistry(new Map([...registryFiles(), ...withText(PILOTS, "azp: pilot-station", "azp: -x")])),
      (error) => {
        assert.ok(error instanceof RegistryError);
        assert.equal(error.code, "config_invalid");
        assert.match(
          error.message,
          /^registry\/partners\/pilot-station\.yaml:5: azp: must be .+ \[schema\]\n {4}hint: /,
        );
        return true;
      },
    );
  });

  /** A mistake in the sample organisation, and the rule that must find it, where. */
  const MISTAKES: readonly (readonly [what: string, changes: ReadonlyMap<string, string>, found: string])[] =
    [
      [
        "two files of one server",
        withText(PILOTS, "serverName: pilots.example", "serverName: chat.dredger.example"),
        `${PILOTS}:3 serverName duplicate_server`,
      ],
      [
        "two clients of one azp",
        withText(PILOTS, "azp: pilot-station", "azp: lighthouse-bridge"),
        `${PILOTS}:5 azp duplicate_azp`,
      ],
      [
        "a partner with the azp of our own bridge",
        withText(PILOTS, "azp: pilot-station", "azp: harbour-bridge"),
        `${PILOTS}:5 azp duplicate_azp`,
      ],
      [
        "two partners whose clients have one secret",
        withText(LIGHTHOUSE, "client-secrets/lighthouse-bridge", "client-secrets/dredger-agents"),
        `${LIGHTHOUSE}:32 gateway.clientSecret duplicate_secret`,
      ],
      [
        "a list that YAML 1.1 takes for a map, so that all of it would be left out",
        new Map([[PILOTS, `%YAML 1.1\n---\n${registryFiles().get(PILOTS)}planes: !!omap [rooms: closed]\n`]]),
        `${PILOTS}:9 planes schema`,
      ],
      [
        "our own server as a partner",
        withText(PILOTS, "serverName: pilots.example", "serverName: matrix.harbour.example"),
        `${PILOTS}:3 serverName own_server`,
      ],
      [
        "a server named twice, once in capitals",
        withText(PILOTS, "serverName: pilots.example", "serverName: Chat.Dredger.example"),
        `registry/partners/dredger.yaml:3 serverName server_case`,
      ],
      [
        "two servers of one host",
        withText(PILOTS, "serverName: pilots.example", "serverName: salvage.example:8448"),
        `${PILOTS}:3 serverName server_host`,
      ],
      [
        "a partner under a name that a final dot alone distinguishes from another's",
        withText(PILOTS, "serverName: pilots.example", "serverName: salvage.example.:8448"),
        `registry/partners/salvage.yaml:3 serverName server_host`,
      ],
      [
        "a partner on our own host",
        withText(PILOTS, "serverName: pilots.example", "serverName: matrix.harbour.example:8448"),
        `${PILOTS}:3 serverName server_host`,
      ],
      [
        "a server without a host name",
        withText(PILOTS, "serverName: pilots.example", "serverName: 203.0.113.7:8448"),
        `${PILOTS}:3 serverName ip_literal`,
      ],
      [
        "an agent that nobody offers",
        withText(LIGHTHOUSE, "invokes: [docs-qa, berth_planner]", "invokes: [docs-qa, berth-planner]"),
        `${LIGHTHOUSE}:31 gateway.invokes.1 agent_not_offered`,
      ],
      [
        "an agent that is invoked twice",
        withText(LIGHTHOUSE, "invokes: [docs-qa, berth_planner]", "invokes: [docs-qa, docs-qa]"),
        `${LIGHTHOUSE}:31 gateway.invokes.1 duplicate_agent`,
      ],
      [
        "a ghost's name taken twice",
        withText(LIGHTHOUSE, "    lighthouse-weather:", "    docs-qa:"),
        `${LIGHTHOUSE}:14 card.consumes.docs-qa agent_collision`,
      ],
      [
        "a list that names a stranger",
        withText(
          "registry/partners/dredger.yaml",
          '"@master:matrix.lighthouse.example:8448"',
          '"*:gull.example"',
        ),
        "registry/partners/dredger.yaml:22 card.consumes.dredger-soundings.allowedSenders.1 unknown_server",
      ],
      [
        "two agents on one path",
        withText(
          ORGANISATION,
          "cardPath: /agents/tide-tables/.well-known/agent-card.json",
          "cardPath: /agents/docs-qa/rpc",
        ),
        `${ORGANISATION}:33 agents.tide-tables.cardPath path_collision`,
      ],
      [
        "a card below another agent's tasks",
        withText(
          ORGANISATION,
          "cardPath: /agents/tide-tables/.well-known/agent-card.json",
          "cardPath: /agents/berth-planner/tasks/card",
        ),
        `${ORGANISATION}:33 agents.tide-tables.cardPath path_collision`,
      ],
    ];

  it("collisions between files are found [REG-1]", () => {
    for (const [what, changes, expected] of MISTAKES) {
      assert.ok(found(changes).includes(expected), `${what}: ${found(changes).join(", ")}`);
    }
  });

  it("a partner's file name that is another partner's server name is refused [REG-1]", () => {
    const changes = new Map([...withText(PILOTS, "serverName: pilots.example", "serverName: salvage")]);
    assert.deepEqual(found(changes), [`${PILOTS}:3 serverName ambiguous_name`]);
  });

  it("a partner whose blob was read before is not read again, and a broken one is never cached", () => {
    const parsed = new Map<string, Partner>();
    const reads: string[] = [];
    const stored = (files: ReadonlyMap<string, string>) =>
      new Map<string, StoredFile>(
        [...files].map(([path, text]) => [
          path,
          {
            blobId: `blob of ${text}`,
            text: () => {
              reads.push(path);
              return text;
            },
          },
        ]),
      );
    const first = loadRegistry(stored(registryFiles()), parsed);
    assert.equal(parsed.size, 4);
    reads.length = 0;
    assert.deepEqual(loadRegistry(stored(registryFiles()), parsed), first);
    assert.deepEqual(reads.sort(), ["registry/abuse-report.schema.json", ORGANISATION]);
    const broken = new Map([...registryFiles(), ...withLine(PILOTS, 3, "secret: hunter2hunter2")]);
    for (let attempt = 0; attempt < 2; attempt++) {
      assert.throws(() => loadRegistry(stored(broken), parsed), /secret\.named_value/);
    }
    assert.equal(parsed.size, 4);
  });
});
