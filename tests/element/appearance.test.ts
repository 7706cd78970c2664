// What a person sees of the bridge in Element Web: one room of a lab, one after the other what happens in it. Each test
// leaves a picture for docs/in-element.md.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { Locator } from "playwright-core";
import { parse, stringify } from "yaml";
import { TRAITS } from "../../lab/organisations.ts";
import type { GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import { Questions } from "../support/lab-questions.ts";
import { eventually, LabSession } from "../support/lab-session.ts";
import { ElementWeb } from "./browser.ts";

const { DRAWBRIDGE_TEST_CHROMIUM, DRAWBRIDGE_TEST_ELEMENT, DRAWBRIDGE_TEST_PICTURES } = process.env;
/** So long that the answer mentions who asked. */
const SURVEY = "40s";
/** A passage wrapped by hand, with a link and a file name that mean something in their folder alone. */
const MOORING = `# Mooring lines

## Splicing a hawser

A hawser with a broken strand is spliced before
the next tide. What a new one costs is written in
[the list of fees](fees-and-berths.md), and what to do
at night in emergencies.md.
`;

const picture = (name: string) => join(DRAWBRIDGE_TEST_PICTURES ?? ".", `${name}.png`);

describe("Element Web", () => {
  const endings: (() => Promise<void> | void)[] = [];
  const later = { after: (end: () => Promise<void> | void) => void endings.push(end) };
  let session: LabSession;
  let element: ElementWeb;
  let room: RoomId;
  let harbour: GhostMxid;
  let documentation: GhostMxid;

  before(async () => {
    assert.ok(
      DRAWBRIDGE_TEST_CHROMIUM !== undefined && DRAWBRIDGE_TEST_ELEMENT !== undefined,
      "./task test:element",
    );
    session = await LabSession.start();
    endings.push(() => session.end());
    const questions = new Questions(session);
    harbour = questions.ghostOf("org-b", "org-b");
    documentation = questions.ghostOf("org-b", "org-a");
    await slowSurveys();
    await questions.plant({ "mooring-lines.md": MOORING });
    const alice = questions.personOf("org-b");
    room = await alice.createRoom({
      preset: "private_chat",
      name: "Harbour office",
      topic: "Mention an agent to ask it",
      invite: [harbour, documentation],
      power_level_content_override: { users: { [harbour]: 50, [documentation]: 50 } },
    });
    await eventually("the agents join", async () => {
      const members = await alice.members(room);
      return members.includes(harbour) && members.includes(documentation);
    });
    const { users, clientUrl, serverName } = session.status.organisations["org-b"];
    const password = users.find(({ userId }) => userId === alice.userId)?.password ?? "";
    element = await ElementWeb.signIn(later, DRAWBRIDGE_TEST_CHROMIUM, DRAWBRIDGE_TEST_ELEMENT, {
      ...{ homeserverUrl: clientUrl, serverName, password },
      localpart: "alice",
    });
    await element.open(room);
  });
  after(async () => {
    for (const end of endings.reverse()) await end();
  });

  async function slowSurveys(): Promise<void> {
    for (const organisation of ["org-a", "org-b"] as const) {
      const file = session.lab.paths.organisation(organisation).agentConfig;
      writeFileSync(file, stringify({ ...parse(readFileSync(file, "utf8")), surveyTime: SURVEY }));
    }
  }

  /** When an event was sent, as the homeserver says. */
  const sentAt = (event: string) =>
    element.page.evaluate<string>(
      `String(window.mxMatrixClientPeg.get().getRoom(${JSON.stringify(room)}).findEventById(${JSON.stringify(event)}).getTs())`,
    );

  const isHighlighted = async (tile: Locator) =>
    (await tile.getAttribute("class"))?.includes("mx_EventTile_highlight") === true;

  it("shows a quick answer without a mention, and names the agent with its organisation and its picture", async () => {
    const question = await element.ask(harbour, "Which radio channel do I call for a bridge opening?");
    const tile = await element.tile(await element.answerTo(question, harbour));
    assert.match(await element.wordsOf(tile), /VHF channel 12/);
    assert.equal(await isHighlighted(tile), false, "a mention colours the whole answer");
    const { agentTitle, title } = TRAITS["org-b"];
    assert.equal(
      await element.textOf(tile.locator(".mx_DisambiguatedProfile_displayName").first()),
      `${agentTitle} · ${title}`,
    );
    const avatar = tile.locator(".mx_EventTile_avatar img").first();
    await avatar.waitFor();
    await element.settle();
    const width = await avatar.evaluate((image) => image.complete && image.naturalWidth);
    assert.ok(Number(width) > 0, "the picture is loaded");
    await element.picture(picture("answer"));
  });

  it("shows a passage that was wrapped by hand as running text, and takes no file for a link", async () => {
    const question = await element.ask(harbour, "How is a hawser with a broken strand spliced?");
    const tile = await element.tile(await element.answerTo(question, harbour));
    const words = await element.wordsOf(tile);
    assert.match(
      words,
      /spliced before the next tide\. What a new one costs is written in the list of fees, and what/,
    );
    assert.match(words, /night in emergencies\.md\./);
    assert.equal(await tile.locator(".mx_EventTile_body br").count(), 0);
    // Of the question that it replies to, the mention of the agent is a link.
    const links = await tile
      .locator('.mx_EventTile_body a[href]:not([href^="https://matrix.to/"])')
      .evaluateAll((all) => all.map((link) => link.href));
    assert.deepEqual(links, []);
  });

  it("shows how far a long task is, pinned, and mentions the asker with the answer", async () => {
    const question = await element.ask(documentation, "Survey the documents about the bridge");
    const status = await element.tile(await element.answerTo(question, documentation, "m.notice", 10_000));
    await status.getByText(/Reading document \d+ of/).waitFor();
    await element.banner.waitFor();
    const first = await element.textOf(element.banner);
    assert.match(first, /The agent is working on this question/);
    await status.getByText("(edited)").waitFor();
    const reading = await element.wordsOf(status);
    await eventually("the message changes in place", async () => (await element.wordsOf(status)) !== reading);
    assert.match(
      await element.textOf(element.banner),
      /The agent is working on this question/,
      "with or without the edit",
    );
    await element.picture(picture("progress"));
    const answer = await element.tile(await element.answerTo(question, documentation));
    assert.equal(await isHighlighted(answer), true, "the answer took long");
    await status.getByText("Done: the question is answered.").waitFor();
    await element.banner.waitFor({ state: "hidden" });

    const beginning = await element.wordsOf(answer);
    assert.match(beginning, /^\d+ of \d+ documents of Organisation A mention this\./);
    assert.match(beginning, /… The whole answer is in the thread of the question\.$/);
    assert.ok(beginning.length < 1_200, "two screens less");
    const asked = await element.tile(question);
    await asked.locator(".mx_ThreadSummary").waitFor();
    await element.picture(picture("long-answer"));
  });

  it("shows a question of the agent, which is answered by the number of an option", async () => {
    const asked = await element.ask(harbour, "Let me choose a section about berths");
    const back = await element.answerTo(asked, harbour);
    const question = await element.tile(back);
    assert.match(await element.wordsOf(question), /Which section do you want to read\?/);
    assert.match(await element.wordsOf(question), /2\ufe0f\u20e3 Opening fee/);
    await element.picture(picture("question"));
    await element.reply(question, "2");
    const answer = await element.eventId(
      "(e) => e.getSender() === ghost && e.getTs() > since && e.getContent().msgtype === 'm.text'",
      { ghost: harbour, since: await sentAt(back) },
    );
    assert.match(await element.wordsOf(await element.tile(answer)), /Fees and berths › Opening fee/);
  });

  it("shows a file of the agent below its words", async () => {
    const asked = await element.ask(harbour, "When does the east span open? Answer as a file");
    const file = await element.eventId(
      "(e) => e.getSender() === ghost && e.getTs() > since && e.getContent().msgtype === 'm.file'",
      { ghost: harbour, since: await sentAt(asked) },
    );
    const tile = await element.tile(file);
    assert.match(
      await element.textOf(tile.locator(".mx_MFileBody_info_filename, .mx_MFileBody").first()),
      /answer\.md/,
    );
    await element.picture(picture("file"));
  });

  it("lists the agents once, with what each does", async () => {
    await element.say("!agents");
    const list = await element.tile(
      await element.eventId("(e) => /mention it with your question/.test(e.getContent().body)"),
    );
    const words = await element.wordsOf(list);
    for (const { agentTitle, title, agentDescription } of Object.values(TRAITS)) {
      assert.ok(words.includes(`${agentTitle} · ${title}`) && words.includes(agentDescription), words);
    }
    assert.match(words, /Survey all documents: Goes through every document/);
    await element.picture(picture("directory"), 1_060);
    assert.equal(await element.page.getByText("mention it with your question").count(), 1);
  });

  it("says why there is no answer", async () => {
    const asked = await element.ask(harbour, "Survey the documents about tides");
    const status = await element.tile(await element.answerTo(asked, harbour, "m.notice"));
    await element.reply(status, "!cancel");
    await element.page.getByText("I have canceled this question, as you asked.").waitFor();
    await status.getByText("This question was canceled.").waitFor();
    await element.say("!help");
    await element.page.getByText("Mention an agent with your question").waitFor();
    await element.picture(picture("notices"));
  });

  it("says within ten seconds that a question waits and why, while the agent is away", async (t) => {
    await session.stop(t, "org-b/agent");
    const asked = await element.ask(harbour, "Which bridge opens first?");
    const begun = Date.now();
    const status = await element.tile(await element.answerTo(asked, harbour, "m.notice", 10_000));
    const words = await element.wordsOf(status);
    assert.match(
      words,
      /This question is waiting\. The agent cannot be reached at the moment\. I keep trying\./,
    );
    assert.ok(Date.now() - begun < 10_000);
    await element.banner.filter({ hasText: "This question is waiting." }).waitFor();
    await element.picture(picture("agent-away"));
    await session.start("org-b/agent");
    await element.answerTo(asked, harbour, "m.text", 120_000);
    await status.getByText("Done: the question is answered.").waitFor();
    await element.banner.waitFor({ state: "hidden" });
  });
});
