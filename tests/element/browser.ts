// A person at Element Web in headless Chromium: signs in with a password, opens rooms, writes, reacts, looks and takes
// pictures, which are kept as PNGs of 256 colours (PNG specification, ISO/IEC 15948), a third as long.
// Invariants: the browser reaches nothing but this machine; what is awaited is an event or an element of the page, never a
// time.
import { createReadStream, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import type { TestContext } from "node:test";
import { crc32, deflateSync, inflateSync } from "node:zlib";
import { type Browser, chromium, type Locator, type Page } from "playwright-core";
import type { RoomId } from "../../src/domain/identifiers.ts";

const SIGNATURE = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");
const COLOURS_MAX = 256;
const CHANNELS: Readonly<Record<number, number>> = { 2: 3, 6: 4 };

interface Chunk {
  readonly type: string;
  readonly data: Buffer;
}

/** @param png true colour of 8 bits, not interlaced, as browsers write it */
export function withPalette(png: Buffer): Buffer {
  const { width, height, colours } = readPixels(png);
  const counts = new Map<number, number>();
  for (const colour of colours) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const palette = [...counts].sort((one, other) => other[1] - one[1]).map(([colour]) => colour);
  palette.length = Math.min(palette.length, COLOURS_MAX);
  const indices = new Map([...counts.keys()].map((colour) => [colour, nearest(palette, colour)]));
  const rows = Buffer.alloc(height * (width + 1));
  for (const [at, colour] of colours.entries()) {
    rows[Math.floor(at / width) * (width + 1) + 1 + (at % width)] = indices.get(colour) ?? 0;
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header[8] = 8; // bits of an index
  header[9] = 3; // indexed colour
  const listed = Buffer.from(palette.flatMap(channelsOf));
  return Buffer.concat([
    SIGNATURE,
    ...[
      { type: "IHDR", data: header },
      { type: "PLTE", data: listed },
      { type: "IDAT", data: deflateSync(rows, { level: 9 }) },
      { type: "IEND", data: Buffer.alloc(0) },
    ].map(writeChunk),
  ]);
}

const channelsOf = (colour: number) => [colour >> 16, (colour >> 8) & 255, colour & 255];

function nearest(palette: readonly number[], colour: number): number {
  const wanted = channelsOf(colour);
  const distances = palette.map((one) =>
    channelsOf(one).reduce((sum, channel, index) => sum + (channel - (wanted[index] ?? 0)) ** 2, 0),
  );
  return distances.indexOf(Math.min(...distances));
}

function readPixels(png: Buffer) {
  const chunks = readChunks(png);
  const header = chunks.find(({ type }) => type === "IHDR")?.data ?? Buffer.alloc(13);
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  const channels = CHANNELS[header[9] ?? 0];
  if (header[8] !== 8 || channels === undefined || header[12] !== 0)
    throw new TypeError("another kind of PNG");
  const compressed = Buffer.concat(chunks.filter(({ type }) => type === "IDAT").map(({ data }) => data));
  const bytes = unfilter(inflateSync(compressed), width * channels, channels);
  const colours = Array.from({ length: width * height }, (_, at) => bytes.readUIntBE(at * channels, 3));
  return { width, height, colours };
}

/** Undoes the filters of the rows, each of which begins with the number of its filter. */
function unfilter(filtered: Buffer, rowBytes: number, channels: number): Buffer {
  const rows = filtered.length / (rowBytes + 1);
  const bytes = Buffer.alloc(rows * rowBytes);
  for (let row = 0; row < rows; row += 1) {
    const filter = filtered[row * (rowBytes + 1)];
    for (let at = 0; at < rowBytes; at += 1) {
      const here = row * rowBytes + at;
      const left = at < channels ? 0 : (bytes[here - channels] ?? 0);
      const up = row === 0 ? 0 : (bytes[here - rowBytes] ?? 0);
      const corner = at < channels || row === 0 ? 0 : (bytes[here - rowBytes - channels] ?? 0);
      const predicted = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter ?? 0] ?? 0;
      bytes[here] = (filtered[row * (rowBytes + 1) + 1 + at] ?? 0) + predicted;
    }
  }
  return bytes;
}

function paeth(left: number, up: number, corner: number): number {
  const estimate = left + up - corner;
  const [toLeft, toUp, toCorner] = [left, up, corner].map((value) => Math.abs(estimate - value)) as [
    number,
    number,
    number,
  ];
  if (toLeft <= toUp && toLeft <= toCorner) return left;
  return toUp <= toCorner ? up : corner;
}

function readChunks(png: Buffer): Chunk[] {
  const chunks: Chunk[] = [];
  for (let at = SIGNATURE.length; at < png.length; ) {
    const length = png.readUInt32BE(at);
    chunks.push({
      type: png.toString("latin1", at + 4, at + 8),
      data: png.subarray(at + 8, at + 8 + length),
    });
    at += length + 12;
  }
  return chunks;
}

function writeChunk({ type, data }: Chunk): Buffer {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  check.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, check]);
}

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".woff2": "font/woff2",
};
const VIEWPORT = { width: 1_040, height: 640 };
const WAIT_MS = 60_000;
/** The timeline is settled when it has looked the same for so long. */
const QUIET_MS = 1_000;

const COMPOSER = ".mx_RoomView_body .mx_MessageComposer .mx_BasicMessageComposer_input";

/** Hides what comes and goes by itself. */
const QUIET_STYLE = `.mx_ToastContainer, .mx_WhoIsTypingTile, .mx_TopUnreadMessagesBar { display: none !important }
  * { caret-color: transparent !important; scrollbar-width: none }`;

/** What is on the screen as text, and how much is still being loaded. */
const SCREEN = `(document.querySelector(".mx_MatrixChat")?.innerText ?? "")
  + document.querySelectorAll(".mx_Spinner").length + [...document.images].filter((i) => !i.complete).length`;

export interface SignIn {
  readonly homeserverUrl: string;
  readonly serverName: string;
  readonly localpart: string;
  readonly password: string;
}

type After = Pick<TestContext, "after">;

/** Serves a folder on loopback. */
async function serve(t: After, folder: string): Promise<string> {
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? "/", "http://x").pathname);
    const file = join(folder, normalize(path.replace(/\/$/, "/index.html")));
    if (statSync(file, { throwIfNoEntry: false })?.isFile() !== true) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream" });
    createReadStream(file).pipe(response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

export class ElementWeb {
  readonly page: Page;
  #room: RoomId | undefined;

  private constructor(page: Page) {
    this.page = page;
  }

  /** Starts Chromium and signs in; both end with the test. @param folder the built interface */
  static async signIn(t: After, program: string, folder: string, person: SignIn): Promise<ElementWeb> {
    const application = await serve(t, folder);
    // A sandbox needs a user of its own, which containers often lack. Only the lab's own pages are shown.
    const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--font-render-hinting=none"];
    const browser = await chromium.launch({ executablePath: program, args: [...args, "--no-proxy-server"] });
    t.after(() => browser.close());
    const page = await newPage(browser);
    const { homeserverUrl: hs, serverName: name, localpart, password } = person;
    await page.goto(`${application}?${new URLSearchParams({ hs, name })}#/login`);
    await page.locator("#mx_LoginForm_username").fill(localpart, { timeout: WAIT_MS });
    await page.locator("#mx_LoginForm_password").fill(password);
    await page.locator(".mx_Login_submit").click();
    const list = page.locator(".mx_RoomTile").first();
    const skip = page.locator(".mx_CompleteSecurity_skip");
    await list.or(skip).first().waitFor({ timeout: WAIT_MS });
    if (await skip.isVisible()) {
      await skip.click();
      await page.getByRole("button", { name: "verify later" }).click();
      await list.waitFor({ timeout: WAIT_MS });
    }
    await page.addStyleTag({ content: QUIET_STYLE });
    return new ElementWeb(page);
  }

  /** Opens a room and waits until its timeline has stopped growing. */
  async open(room: RoomId): Promise<void> {
    this.#room = room;
    await this.page.evaluate(`window.location.hash = ${JSON.stringify(`#/room/${room}`)}`);
    await this.page.locator(COMPOSER).first().waitFor({ timeout: WAIT_MS });
    await this.settle();
  }

  /** Until the page has said the same for a while and every picture of it is there. */
  async settle(): Promise<void> {
    await this.page.waitForFunction(
      `(() => {
        const now = ${SCREEN};
        const seen = (window.seen ??= { text: undefined, since: 0 });
        if (now !== seen.text) { seen.text = now; seen.since = performance.now(); }
        return performance.now() - seen.since > ${QUIET_MS};
      })()`,
      undefined,
      { polling: 150, timeout: WAIT_MS },
    );
    await this.page.evaluate("document.fonts.ready.then(() => undefined)");
  }

  /** Types a message; the user `mention` becomes a pill by the composer's own completion. */
  async say(text: string, mention?: string): Promise<void> {
    const composer = this.page.locator(COMPOSER).first();
    await composer.click();
    if (mention !== undefined) {
      await composer.pressSequentially(mention.split(":")[0] ?? "", { delay: 20 });
      await this.page.locator(".mx_Autocomplete_Completion", { hasText: mention }).first().click();
    }
    await composer.pressSequentially(text);
    await composer.press("Enter");
  }

  /** Asks a ghost in the open room; the event ID of the question once the homeserver has it. */
  async ask(ghost: string, text: string): Promise<string> {
    await this.say(` ${text}`, ghost);
    return await this.eventId(
      `(e) => e.getSender() === client.getUserId() && e.getContent().body?.endsWith(text)`,
      {
        text,
      },
    );
  }

  /** Replies to a message of the open room. */
  async reply(to: Locator, text: string): Promise<void> {
    await to.hover();
    await to.getByRole("button", { name: "Reply", exact: true }).click();
    await this.say(text);
  }

  /** The event of a ghost that replies to an event, and whose message is of the type. */
  answerTo(event: string, ghost: string, msgtype = "m.text", timeoutMs = WAIT_MS): Promise<string> {
    return this.eventId(
      "(e) => e.getSender() === ghost && e.replyEventId === event && e.getContent().msgtype === msgtype",
      { event, ghost, msgtype },
      timeoutMs,
    );
  }

  /** The ID of the last event of the open room for which a JavaScript function, in which `client` is Element's, holds. */
  async eventId(
    matches: string,
    values: Readonly<Record<string, string>> = {},
    timeoutMs = WAIT_MS,
  ): Promise<string> {
    const names = Object.keys(values).map((name) => `const ${name} = ${JSON.stringify(values[name])};`);
    const found = await this.page.waitForFunction(
      `(() => {
        const client = window.mxMatrixClientPeg.get();
        ${names.join(" ")}
        const room = client.getRoom(${JSON.stringify(this.#room)});
        const found = room.getLiveTimeline().getEvents().findLast(${matches});
        const id = found?.getId();
        return id?.startsWith("$") && id;
      })()`,
      undefined,
      { timeout: timeoutMs, polling: 100 },
    );
    return String(await found.jsonValue());
  }

  /** The tile that shows an event in the open room. */
  async tile(event: string): Promise<Locator> {
    const tile = this.page.locator(`.mx_RoomView_body .mx_EventTile[data-event-id="${event}"]`);
    await tile.waitFor({ timeout: WAIT_MS });
    return tile;
  }

  /** The words of a message as they are shown, without those that it replies to. */
  wordsOf(tile: Locator): Promise<string> {
    return this.textOf(tile.locator(".mx_EventTile_body").last());
  }

  async textOf(shown: Locator): Promise<string> {
    // biome-ignore lint/performance/useDomNodeTextContent: where lines break is what is asked for.
    return await shown.innerText();
  }

  /** The banner of the pinned message. */
  get banner(): Locator {
    return this.page.locator(".mx_PinnedMessageBanner");
  }

  /** Takes a picture of the end of the open room, once it has settled. */
  async picture(file: string, height = VIEWPORT.height): Promise<void> {
    await this.page.setViewportSize({ ...VIEWPORT, height });
    const toEnd = this.page.locator(".mx_JumpToBottomButton");
    if (await toEnd.isVisible()) await toEnd.click();
    await this.settle();
    await this.page.mouse.move(0, 0);
    const taken = await this.page.locator(".mx_RoomView").screenshot({ animations: "disabled" });
    writeFileSync(file, withPalette(taken));
    await this.page.setViewportSize(VIEWPORT);
  }
}

async function newPage(browser: Browser): Promise<Page> {
  const context = await browser.newContext({
    viewport: VIEWPORT,
    colorScheme: "light",
    reducedMotion: "reduce",
    locale: "en-GB",
    timezoneId: "UTC",
  });
  await context.route(
    (url) => /^https?:$/.test(url.protocol) && url.hostname !== "127.0.0.1",
    (route) => route.abort(),
  );
  // This version's own emoji font draws keycaps as blocks in today's Chromium (element-web#28421); the system's does not.
  await context.route(/TwemojiMozilla/, (route) => route.abort());
  // What the service worker of element-web does: media is read with the reader's token.
  let bearer: string | undefined;
  context.on("request", (request) => {
    bearer = request.headers()["authorization"] ?? bearer;
  });
  await context.route(/\/_matrix\/media\/(v3|r0)\/(download|thumbnail)\//, (route) =>
    route.continue({
      url: route
        .request()
        .url()
        .replace(/\/_matrix\/media\/(v3|r0)\//, "/_matrix/client/v1/media/"),
      headers: { ...route.request().headers(), ...(bearer !== undefined && { authorization: bearer }) },
    }),
  );
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  await page.addInitScript(`if (window === window.top) {
    localStorage.setItem("mx_accepts_unsupported_browser", "true");
    localStorage.setItem("notifications_hidden", "true");
  }`);
  return page;
}
