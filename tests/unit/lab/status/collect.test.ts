import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { stringify } from "yaml";
import { collectStatus } from "../../../../lab/status/collect.ts";
import { renderStatus } from "../../../../lab/status/render.ts";
import { FedStatus } from "../../../../lab/status/schema.ts";
import { assertGolden } from "../../../support/golden.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";
import { paperLab } from "../paper-lab.ts";

describe("the status of a lab", () => {
  it("the status of a lab that does not run says so, and keeps to its schema", async () => {
    const status = FedStatus.parse(await collectStatus(paperLab("/nonexistent/lab/default")));
    assert.equal(status.healthy, false);
    assert.equal(status.supervisor.pid, null);
    assertGolden("lab/status-stopped.txt", renderStatus(status));
  });

  it("every path in a status is absolute, whatever the folder's name", async () => {
    const status = await collectStatus(paperLab("/nonexistent/a folder/lab/default"));
    const paths = [
      ...JSON.stringify(status).matchAll(
        /"(?:\w+(?:File|Directory)|directory|accessLog|documents)":"([^"]+)"/g,
      ),
    ];
    assert.ok(paths.length > 40);
    for (const [, path] of paths) assert.match(path ?? "", /^\/nonexistent\/a folder\//);
  });

  it("the clients of an organisation are those that its issuer has in force, even after a re-admission", async (t) => {
    const folder = temporaryFolder(t);
    const lab = paperLab(folder);
    const { clientsFile, clientSecret } = lab.paths.organisation("org-a");
    const listed = async () => (await collectStatus(lab)).organisations["org-a"].clients;
    assert.deepEqual(await listed(), [], "nothing is declared before the lab was first started");
    const declared = (clientId: string, partner?: string) => ({
      ...{ clientId, secret: { file: `client-secrets/${clientId}.secret` } },
      ...(partner === undefined ? {} : { partner }),
    });
    const clients = [
      declared("org-a-bridge"),
      declared("org-c-applicant", lab.serverNames["org-c"]),
      declared("org-b-bridge-2", lab.serverNames["org-b"]),
    ];
    writeFile(clientsFile, stringify({ version: 1, clients }));
    const [own, applicant, theirs] = clients.map(({ clientId, partner }) => ({
      ...{ clientId, secretFile: clientSecret(clientId), partner: partner ?? null },
    }));
    assert.deepEqual(await listed(), [own, theirs, applicant]);
    writeFile(clientsFile, "version: 1\nclients: [");
    assert.deepEqual(await listed(), [], "which of them the issuer goes on with, nobody else knows");
  });

  it("the ghosts of a bridge are those of both organisations' agents and of the agents that were added", async (t) => {
    const lab = paperLab(temporaryFolder(t));
    const listed = async () =>
      (await collectStatus(lab)).organisations["org-b"].bridge?.ghosts.map(({ agent, userId, cardUrl }) => [
        ...[agent, userId, new URL(cardUrl).pathname],
      ]);
    const served = "/agents/docs-qa/.well-known/agent-card.json";
    const both = [
      ["docs-qa", "@agent_docs-qa:org-b.test:20012", served],
      ["org-a-docs-qa", "@agent_org-a-docs-qa:org-b.test:20012", served],
    ];
    assert.deepEqual(await listed(), both, "before the lab was first started");
    const entry = (cardUrl: string) => ({ cardUrl, allowedServers: [], allowedSenders: [] });
    const agents = {
      timetable: entry("http://127.0.0.1:9100/card.json"),
      "docs-qa": entry("http://127.0.0.1:9/"),
    };
    const { agentsFile } = lab.paths.organisation("org-b");
    writeFile(agentsFile, stringify({ version: 1, agents }));
    const added = ["timetable", "@agent_timetable:org-b.test:20012", "/card.json"];
    assert.deepEqual(await listed(), [...both, added]);
    writeFile(agentsFile, "version: 1\nagents: {");
    assert.deepEqual(await listed(), both, "the file cannot be read");
  });

  it("a room that a containment has left is listed with the one that has replaced it", async (t) => {
    const lab = paperLab(temporaryFolder(t));
    const room = (createdBy: "org-a" | "org-b", roomId: string) => ({
      ...{ roomId, alias: `#shared:${lab.serverNames[createdBy]}`, encrypted: false, createdBy },
    });
    const users = { "org-a": [], "org-b": [], "org-c": [], "org-d": [] };
    const rooms = [room("org-a", "!kept:a"), room("org-b", "!old:b"), room("org-b", "!given-up:b")];
    writeFile(lab.paths.seed, JSON.stringify({ users, rooms }));
    const act = (entry: object) => `${JSON.stringify(entry)}\n`;
    const gone = { act: "gone", purged: true, moved: 1, invited: 0 };
    writeFile(
      join(
        ...[lab.paths.organisation("org-a").federationState, "rooms"],
        `${encodeURIComponent(lab.serverNames["org-b"])}.jsonl`,
      ),
      [
        act({ act: "acl", room: "!kept:a", before: null }),
        act({ act: "replacement", room: "!old:b", to: "!new:a", aliases: [], members: [], invited: [] }),
        act({ ...gone, room: "!old:b", how: "replaced" }),
        act({ ...gone, room: "!given-up:b", how: "left" }),
      ].join(""),
    );
    const status = FedStatus.parse(await collectStatus(lab));
    assert.deepEqual(
      status.organisations["org-a"].rooms.map(({ roomId, left, replacedBy }) => [roomId, left, replacedBy]),
      [
        ["!kept:a", null, null],
        ["!old:b", "replaced", "!new:a"],
        ["!given-up:b", "left", null],
      ],
    );
    assert.deepEqual(
      status.organisations["org-b"].rooms.map(({ left }) => left),
      [null, null, null],
      "it has left nothing itself",
    );
    const lines = renderStatus(status).split("\n");
    const alias = rooms[1]?.alias;
    assert.ok(lines.includes(`  room   !new:a  in place of ${alias}  !old:b, which was left`));
    assert.ok(lines.includes(`  left   ${alias}  !given-up:b`));
  });

  it("org-c has a homeserver and credentials, and nothing else", async () => {
    const { organisations } = await collectStatus(paperLab("/nonexistent"));
    const outsider = organisations["org-c"];
    assert.equal(outsider.bridge ?? outsider.gateway ?? outsider.issuer ?? outsider.agent, undefined);
    assert.deepEqual(
      outsider.clients.map((client) => client.clientId),
      ["org-c-bridge", "org-c-applicant", "org-c-applicant"],
    );
    assert.deepEqual(outsider.rooms, []);
  });
});
