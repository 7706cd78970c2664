import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { FederationConfig } from "../../../../src/federation/config.ts";
import { borderStatus } from "../../../../src/federation/planes/border/runtime.ts";
import { httpServer } from "../../../support/http-server.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

describe("the client of the border module", () => {
  it("rooms that the module had no time to compare are asked about again, and none counts as compared that was not [PLN-2]", async (t) => {
    const directory = temporaryFolder(t);
    writeFileSync(join(directory, "token"), "secret", { mode: 0o600 });
    const server = await httpServer(t);
    const asked: string[][] = [];
    let compares = 2;
    server.answer = (request, response) => {
      let text = "";
      request.setEncoding("utf8").on("data", (part: string) => {
        text += part;
      });
      request.on("end", () => {
        const { rooms } = JSON.parse(text) as { rooms: string[] };
        asked.push(rooms);
        const differing = rooms.slice(0, compares).filter((room) => room === "!4");
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ differing, compared: Math.min(compares, rooms.length) }));
      });
    };
    const { differing } = borderStatus({
      directory,
      homeserver: { url: server.url },
      border: { statusToken: { file: "token" } },
    } as unknown as FederationConfig);
    const rooms = ["!1", "!2", "!3", "!4", "!5"];
    assert.deepEqual(await differing(rooms, []), ["!4"]);
    assert.deepEqual(asked, [rooms, rooms.slice(2), rooms.slice(4)]);
    compares = 0;
    await assert.rejects(differing(rooms, []), { code: "homeserver_refused" });
  });
});
