// Avatars of ghosts: the icon of the verified card, fetched like everything of the agent, uploaded once.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { AgentTarget } from "../../../../src/bridge/agents/loaded-agents.ts";
import { createGhosts } from "../../../../src/bridge/ledger/ghosts.ts";
import { createAvatars } from "../../../../src/bridge/matrix/avatars.ts";
import { Ghosts } from "../../../../src/bridge/matrix/ghosts.ts";
import type { AgentCard } from "../../../../src/cards/card-fields.ts";
import { ICON_BYTES_MAX } from "../../../../src/cards/fetch.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { agentTarget } from "../../../support/agents.ts";
import { fullCard, testKey } from "../../../support/cards.ts";
import { testDatabase } from "../../../support/database.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { httpServer, scriptedHomeserver } from "../../../support/http-server.ts";
import { recordedLog } from "../../../support/recorded-log.ts";

const key = await testKey("k1");
const PNG = Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), Buffer.from("an icon")]);
const OTHER_PNG = Buffer.concat([PNG, Buffer.from(" with more")]);
const HOUR = 3_600_000;

/** A bridge with one agent, the server of its icon, and a homeserver that says what it was given. */
async function fixture(t: TestContext) {
  const { pool } = await testDatabase(t);
  const server = await httpServer(t);
  const icon = (bytes: Uint8Array, type = "image/png") => {
    server.answer = (_request, response) => response.writeHead(200, { "content-type": type }).end(bytes);
  };
  icon(PNG);
  let uploads = 0;
  const homeserver = await scriptedHomeserver(t, ({ path }) => {
    if (!path.endsWith("/upload")) return { body: {} };
    uploads += 1;
    return { body: { content_uri: `mxc://a.test/${uploads}` } };
  });
  const side = ghostSide(t, homeserver.url);
  const ledger = { ghosts: createGhosts(pool) };
  const { lines, log } = recordedLog();
  const state = {
    target: agentTarget(key, { cardUrl: `${server.url}/card` }) as AgentTarget,
    card: undefined as AgentCard | undefined,
  };
  const say = (iconUrl: string | undefined, more: object = {}) => {
    const { iconUrl: _, ...rest } = fullCard();
    state.card = { ...rest, ...(iconUrl !== undefined && { iconUrl }), ...more } as unknown as AgentCard;
  };
  say(`${server.url}/icon.png`);
  /** What a bridge process works with; each has a memory of its own. */
  const process = (isOn = true) =>
    createAvatars({
      agents: {
        current: async () => ({
          byGhost: new Map([[state.target.ghost, state.target]]),
          partnerGhosts: [],
        }),
      },
      cards: { verifiedCard: () => state.card },
      ledger,
      homeserver: side.homeserver,
      ghosts: new Ghosts({ homeserver: side.homeserver, ledger, clock: side.clock, random: systemRandom }),
      isOn,
      isTurn: () => true,
      clock: side.clock,
      log,
      onError: () => assert.fail("no error"),
    });
  /** What the homeserver was told about pictures since the last call. */
  let from = 0;
  const calls = () => {
    const requests = homeserver.requests.slice(from);
    from = homeserver.requests.length;
    return requests
      .filter(({ path }) => path.endsWith("/upload") || path.endsWith("/avatar_url"))
      .map(({ path, body }) =>
        path.endsWith("/upload") ? "upload" : (body as { avatar_url: string }).avatar_url,
      );
  };
  const whys = () => lines.map((line) => line["why"]).filter((why) => why !== undefined);
  return { state, server, homeserver, icon, say, process, calls, whys, clock: side.clock };
}

describe("avatars of ghosts", () => {
  it("sets the icon of the verified card, uploaded once for all processes [AGT-2]", async (t) => {
    const { process, server, homeserver, calls, state } = await fixture(t);
    const first = process();
    await first.round();
    await first.round();
    await process().round();
    assert.deepEqual(calls(), ["upload", "mxc://a.test/1"]);
    assert.equal(server.requests.length, 1);
    assert.equal(server.requests[0]?.headers.authorization, undefined, "no token is sent");
    const set = homeserver.requests.find(({ path }) => path.endsWith("/avatar_url"));
    assert.equal(set?.query.get("user_id"), state.target.ghost);
  });

  it("replaces the avatar when the card changes its icon, and uploads the same image no second time [AGT-2]", async (t) => {
    const { process, server, icon, say, calls, clock } = await fixture(t);
    const avatars = process();
    await avatars.round();
    calls();
    say(`${server.url}/icon.png`, { version: "2.2.0" });
    await avatars.round();
    assert.deepEqual(calls(), [], "another card with the same image");
    await clock.advance(HOUR);
    icon(OTHER_PNG);
    say(`${server.url}/icon.png`, { version: "2.3.0" });
    await avatars.round();
    assert.deepEqual(calls(), ["upload", "mxc://a.test/2"]);
    say(undefined);
    await avatars.round();
    assert.deepEqual(calls(), [""], "a card without an icon");
    await process().round();
    assert.deepEqual(calls(), []);
  });

  it("uploads one image in an hour of a card that changes its icon all the time [AGT-4]", async (t) => {
    const { process, server, icon, say, calls, clock } = await fixture(t);
    for (let minute = 0; minute < 180; minute += 4) {
      icon(Buffer.concat([PNG, Buffer.from(String(minute))]));
      say(minute % 8 === 0 ? `${server.url}/icon.png` : undefined, { version: String(minute) });
      await process().round();
      await clock.advance(4 * 60_000);
    }
    const made = calls();
    assert.equal(made.filter((one) => one === "upload").length, 3);
    assert.ok(made.length <= 9, `${made.length} requests`);
  });

  it("takes an icon that stands in the card itself without a request", async (t) => {
    const { process, server, say, calls } = await fixture(t);
    say(`data:image/png;base64,${PNG.toString("base64")}`);
    await process().round();
    assert.deepEqual(calls(), ["upload", "mxc://a.test/1"]);
    assert.equal(server.requests.length, 0);
  });

  it("gives a ghost nothing of a card that is not verified [AGT-2]", async (t) => {
    const { process, server, state, calls } = await fixture(t);
    state.card = undefined;
    await process().round();
    assert.deepEqual([calls(), server.requests.length], [[], 0]);
  });

  it("requests nothing and takes away what was set when avatars are switched off", async (t) => {
    const { process, server, calls } = await fixture(t);
    await process(false).round();
    assert.deepEqual([calls(), server.requests.length], [[], 0]);
    await process().round();
    calls();
    await process(false).round();
    await process(false).round();
    assert.deepEqual([calls(), server.requests.length], [[""], 1]);
  });

  for (const [why, iconUrl] of [
    ["another origin", "https://elsewhere.test/icon.png"],
    ["an address of the bridge's own network", "http://169.254.169.254/icon.png"],
    ["a file", "file:///etc/passwd"],
    ["no URL", "icon.png"],
    ["a script in the card", `data:image/svg+xml;base64,${Buffer.from("<svg/>").toString("base64")}`],
  ] as const) {
    it(`requests no icon at ${why} [AGT-4]`, async (t) => {
      const { process, server, say, calls, whys } = await fixture(t);
      say(iconUrl);
      await process().round();
      assert.deepEqual([calls(), server.requests.length, whys()], [[], 0, ["address_refused"]]);
    });
  }

  it("requests no icon at a private address that the operator has not listed [AGT-4]", async (t) => {
    const { process, server, say, state, calls, whys } = await fixture(t);
    const named = server.url.replace("127.0.0.1", "localhost");
    say(`${named}/icon.png`);
    state.target = agentTarget(key, { cardUrl: `${named}/card` });
    await process().round();
    assert.deepEqual([calls(), server.requests.length, whys()], [[], 0, ["address_not_public"]]);
    state.target = agentTarget(key, { cardUrl: `${named}/card`, allowedOrigins: [named] });
    await process().round();
    assert.deepEqual([calls().length, server.requests.length], [2, 1]);
  });

  it("sets nothing that is no image, too large, redirected or of another type [AGT-4]", async (t) => {
    const { process, server, icon, calls, whys } = await fixture(t);
    const html = Buffer.from("<html><script>alert(1)</script>");
    icon(html);
    await process().round();
    icon(Buffer.from("%PDF-1.4 under the name of a picture"));
    await process().round();
    icon(html, "text/html");
    await process().round();
    icon(Buffer.from("<svg/>"), "image/svg+xml");
    await process().round();
    icon(Buffer.concat([PNG, Buffer.alloc(ICON_BYTES_MAX)]));
    await process().round();
    server.answer = (_request, response) => response.writeHead(302, { location: "/icon2.png" }).end();
    await process().round();
    assert.deepEqual(calls(), []);
    assert.deepEqual(whys(), [
      "not_an_image",
      "not_an_image",
      "media_type_refused",
      "media_type_refused",
      "too_large",
      "redirected",
    ]);
  });

  it("tries an icon that failed again at growing intervals, not at each verification of the card", async (t) => {
    const { process, server, say, calls, clock } = await fixture(t);
    server.answer = (_request, response) => response.writeHead(503).end();
    const avatars = process();
    const asked: number[] = [];
    for (let minute = 0; minute < 60; minute += 1) {
      // The same card, read again.
      say(`${server.url}/icon.png`);
      await avatars.round();
      if (server.requests.length > asked.length) asked.push(minute);
      await clock.advance(60_000);
    }
    assert.deepEqual(asked, [0, 1, 3, 7, 15, 31]);
    server.answer = (_request, response) => response.writeHead(200, { "content-type": "image/png" }).end(PNG);
    await clock.advance(6 * HOUR);
    await avatars.round();
    assert.deepEqual(calls(), ["upload", "mxc://a.test/1"]);
  });

  it("keeps the avatar that is set when a new one cannot be fetched or stored", async (t) => {
    const { process, server, homeserver, icon, say, calls, clock } = await fixture(t);
    const avatars = process();
    await avatars.round();
    calls();
    await clock.advance(HOUR);
    icon(OTHER_PNG);
    say(`${server.url}/new.png`);
    const { script } = homeserver;
    homeserver.script = (request) =>
      request.path.endsWith("/upload") ? { status: 413, body: { errcode: "M_TOO_LARGE" } } : script(request);
    await avatars.round();
    assert.deepEqual(calls(), ["upload"]);
    homeserver.script = script;
    await clock.advance(60_000);
    await avatars.round();
    assert.deepEqual(calls(), ["upload", "mxc://a.test/2"]);
  });

  it("uploads an image once, however often the homeserver refuses it as an avatar [AGT-2]", async (t) => {
    const { process, homeserver, calls, clock, icon } = await fixture(t);
    const { script } = homeserver;
    homeserver.script = (request) =>
      request.path.endsWith("/avatar_url")
        ? { status: 403, body: { errcode: "M_FORBIDDEN" } }
        : script(request);
    const avatars = process();
    await avatars.round();
    assert.deepEqual(calls(), ["upload", "mxc://a.test/1"]);
    await clock.advance(60_000);
    await avatars.round();
    await process().round();
    assert.deepEqual(calls(), ["mxc://a.test/1", "mxc://a.test/1"]);
    await clock.advance(HOUR);
    icon(OTHER_PNG);
    await process().round();
    assert.deepEqual(calls(), ["upload", "mxc://a.test/2"]);
    homeserver.script = script;
    await process().round();
    await process().round();
    assert.deepEqual(calls(), ["mxc://a.test/2"]);
  });
});
