import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { renderMarkdownPieces } from "../../../../src/bridge/matrix/markdown.ts";
import { systemClock } from "../../../../src/domain/clock.ts";

/** The budget of time plays no part here: the clock stands still. */
const STILL = { ...systemClock, now: () => 0 };
const render = async (text: string) => (await renderMarkdownPieces([text], STILL))[0] ?? "";

describe("markdown", () => {
  it("Markdown becomes the HTML that chat clients show", async () => {
    assert.equal(
      await render("# Title\n\nSee `code` and [docs](https://example.org/a?b=c&d)."),
      [
        "<h1>Title</h1>",
        '<p>See <code>code</code> and <a href="https://example.org/a?b=c&amp;d">docs</a>.</p>',
      ].join("\n"),
    );
    assert.equal(await render("one\ntwo"), "<p>one\ntwo</p>");
  });

  it("a file name is code, so that no client makes a link to a foreign host of it", async () => {
    assert.equal(
      await render("See configuration.md, [run.sh](run.sh) and **docs/a.py**."),
      "<p>See <code>configuration.md</code>, <code>run.sh</code> and <strong><code>docs/a.py</code></strong>.</p>",
    );
    assert.equal(
      await render("Look into emergencies.md. Or a.md, (b.sh): c.py! d.md.e stays."),
      "<p>Look into <code>emergencies.md</code>. Or <code>a.md</code>, (<code>b.sh</code>): <code>c.py</code>! d.md.e stays.</p>",
    );
    assert.equal(
      await render("[a.md](https://e.org/a.md) https://e.org/a.md a@b.md `c.md`"),
      '<p><a href="https://e.org/a.md">a.md</a> https://e.org/a.md a@b.md <code>c.md</code></p>',
    );
  });

  it("HTML in an answer is escaped", async () => {
    assert.equal(await render("<script>alert(1)</script>"), "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>");
    assert.equal(
      await render('<img src="https://example.org/x.png">'),
      "<p>&lt;img src=&quot;https://example.org/x.png&quot;&gt;</p>",
    );
  });

  it("links lead to http, https or mailto only, and images are not loaded", async () => {
    for (const target of [
      "javascript:alert(1)",
      "data:text/html,x",
      "file:///etc/passwd",
      "vbscript:x",
      "//host/x",
      "JaVaScRiPt:x",
    ]) {
      assert.doesNotMatch(await render(`[x](${target})`), /<a/);
      assert.doesNotMatch(await render(`[x](<${target}>)`), /<a/);
      assert.doesNotMatch(await render(`<${target}>`), /<a/);
      assert.doesNotMatch(await render(`[x][y]\n\n[y]: ${target}`), /<a/);
    }
    for (const target of ["https://e.org", "http://e.org", "mailto:a@e.org"]) {
      assert.match(await render(`[x](${target})`), /<a href=/);
    }
    for (const target of [
      "configuration.md",
      "../a/b.md#c",
      "#part",
      "matrix:u/a:e.org",
      "https://matrix.to/#/@a:e.org",
      "https://matrix%2Eto/#/@a:e.org",
      "https:///www.matrix.to./#/@a:e.org",
      "https://matrix.to%2F%23%2F%40a%3Ae.org@example.org/",
    ]) {
      assert.equal(await render(`see [the **words**](${target})`), "<p>see the <strong>words</strong></p>");
    }
    assert.doesNotMatch(await render("![x](https://example.org/x.png)"), /<img/);
  });

  it("a text whose elements stand in each other by the hundred stays plain", async () => {
    const nested = (depth: number) => `${"**".repeat(depth)}a${"**".repeat(depth)}`;
    const [shallow, deep] = await renderMarkdownPieces([nested(20), nested(500)], STILL);
    assert.match(shallow ?? "", /^<p>(?:<strong>){20}a/);
    assert.equal(deep, undefined);
  });

  it("any text becomes known elements alone, with a link's target and a code's language as the only attributes", async () => {
    const element = /<\/?([a-z0-9]+)((?: [a-z]+="[^"]*")*)(?: ?\/)?>/g;
    const known = new Set(
      "p br h1 h2 h3 h4 h5 h6 strong em s code pre a ul ol li blockquote hr table thead tbody tr th td".split(
        " ",
      ),
    );
    const fragment = fc.constantFrom(
      "<",
      ">",
      '"',
      "'",
      "&",
      "](",
      "[",
      "!",
      "`",
      "```",
      "~~~",
      "*",
      "_",
      "|",
      "\n",
      "- ",
      "> ",
      "# ",
      "javascript:",
      "https://e.org",
      " onerror=x",
      "\\",
      "1. ",
      "<a href=x>",
      "\t",
      "---",
      "|-|",
      "text",
    );
    await fc.assert(
      fc.asyncProperty(fc.array(fragment, { maxLength: 40 }), async (parts) => {
        const html = await render(parts.join(""));
        for (const [, name = "", attributes = ""] of html.matchAll(element)) {
          assert.ok(known.has(name), name);
          assert.match(
            attributes,
            /^(?: href="(?:https?:\/\/|mailto:)[^"]*"| class="language-[^"]*"| style="text-align:[a-z]+"| start="[0-9]+"| title="[^"]*")*$/i,
          );
        }
        assert.doesNotMatch(html.replace(element, ""), /</, "no other angle bracket opens anything");
      }),
      { numRuns: 1_500 },
    );
  });

  it("a code block that is cut stays a code block in both pieces", async () => {
    assert.deepEqual(await renderMarkdownPieces(["before\n```ts\none\n", "two\n```\nafter **x**"], STILL), [
      '<p>before</p>\n<pre><code class="language-ts">one\n</code></pre>',
      '<pre><code class="language-ts">two\n</code></pre>\n<p>after <strong>x</strong></p>',
    ]);
  });

  describe("above its budget", () => {
    const PIECE = 16 * 1024;
    const filled = (unit: string) => unit.repeat(Math.ceil(PIECE / unit.length)).slice(0, PIECE);
    const head = (columns: number) => `${"|a".repeat(columns)}|\n${"|-".repeat(columns)}|\n`;

    it("a table of tens of thousands of cells is not rendered, wherever it stands [AGT-4]", async () => {
      for (const table of [
        `${head(1_000)}${filled("|\n")}`,
        filled(`${head(100)}${"|\n".repeat(650)}\n`),
        filled(`${head(60)}${"x\n".repeat(400)}\n`),
        `> ${head(500).replace("\n", "\n> ")}${filled("> |\n")}`,
        `- ${head(500).replace("\n", "\n  ")}${filled("  |\n")}`,
      ]) {
        assert.deepEqual(await renderMarkdownPieces([table.slice(0, PIECE)], STILL), [undefined]);
      }
      assert.match(await render(`${head(20)}${"|1".repeat(20)}|\n`), /^<table>/);
      const readable = `${head(10)}${`${"| cell ".repeat(10)}|\n`.repeat(200)}`;
      assert.equal((await render(readable)).match(/<td/g)?.length, 2_000);
    });

    it("no text of an event's length has more cells or takes more than a fifth of a second [AGT-4]", async () => {
      const unit = fc.constantFrom(
        ..."[ ] ( ) * ** _ ` `` < <a & \\ > - 1. # | |- |-| a|b ~ ~~~ ! [a]: ![ ](".split(" "),
        "\n",
        "\n\n",
        "|\n",
        " ",
        "    ",
        head(30),
        head(300),
      );
      const text = fc
        .tuple(fc.array(unit, { minLength: 1, maxLength: 4 }), fc.array(unit, { minLength: 1, maxLength: 4 }))
        .map(([first, second]) =>
          [first, second].map((units) => filled(units.join("")).slice(0, PIECE / 2)).join(""),
        );
      await fc.assert(
        fc.asyncProperty(text, async (piece) => {
          const before = process.threadCpuUsage();
          const html = await render(piece);
          const { user, system } = process.threadCpuUsage(before);
          assert.ok((html.match(/<t[dh]/g)?.length ?? 0) <= 4_096);
          assert.ok(user + system < 200_000, `${user + system} µs of the processor`);
        }),
        { numRuns: 300 },
      );
    });

    it("a link's target or title that is used thousands of times is not written as often [AGT-4]", async () => {
      for (const link of ["http://a.test/TARGET", "http://a.test 'TARGET'"]) {
        const text = `[a]: ${link.replace("TARGET", "&".repeat(PIECE / 2))}\n\n`;
        const html = await render(text + "[a]".repeat((PIECE - text.length) / 3));
        assert.match(html, /^<p><a href="http:\/\/a\.test/);
        assert.ok(html.length < 512 * 1024, `${html.length} characters`);
      }
    });

    it("a long answer is formatted piece by piece, and other work runs in between [AGT-4]", async () => {
      const pieces = Array.from({ length: 20 }, () => filled("- a\n"));
      let turns = 0;
      let isOver = false;
      const turn = () => {
        turns += 1;
        if (!isOver) setImmediate(turn);
      };
      setImmediate(turn);
      await renderMarkdownPieces(pieces, STILL);
      isOver = true;
      assert.ok(turns >= pieces.length, `${turns} turns of the event loop`);
    });

    it("what is left when the time is over, or after a mebibyte, stays plain [AGT-4]", async () => {
      let now = 0;
      const slow = { ...systemClock, now: () => (now += 400) };
      const inTime = await renderMarkdownPieces(
        Array.from({ length: 5 }, () => "*a*"),
        slow,
      );
      assert.deepEqual(inTime, ["<p><em>a</em></p>", "<p><em>a</em></p>", undefined, undefined, undefined]);
      const long = await renderMarkdownPieces(
        Array.from({ length: 70 }, () => "a".repeat(PIECE)),
        STILL,
      );
      assert.equal(long.filter((html) => html === undefined).length, 70 - 64);
    });
  });
});
