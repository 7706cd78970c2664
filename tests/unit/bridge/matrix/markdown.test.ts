import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { renderMarkdownPieces } from "../../../../src/bridge/matrix/markdown.ts";

const render = (text: string) => renderMarkdownPieces([text])[0] ?? "";

describe("markdown", () => {
  it("Markdown becomes the HTML that chat clients show", () => {
    assert.equal(
      render("# Title\n\nSee `code` and [docs](https://example.org/a?b=c&d)."),
      [
        "<h1>Title</h1>",
        '<p>See <code>code</code> and <a href="https://example.org/a?b=c&amp;d">docs</a>.</p>',
      ].join("\n"),
    );
    assert.equal(render("one\ntwo"), "<p>one<br>\ntwo</p>");
  });

  it("HTML in an answer is escaped", () => {
    assert.equal(render("<script>alert(1)</script>"), "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>");
    assert.equal(
      render('<img src="https://example.org/x.png">'),
      "<p>&lt;img src=&quot;https://example.org/x.png&quot;&gt;</p>",
    );
  });

  it("links lead to http, https, mailto or matrix only, and images are not loaded", () => {
    for (const target of [
      "javascript:alert(1)",
      "data:text/html,x",
      "file:///etc/passwd",
      "vbscript:x",
      "//host/x",
      "JaVaScRiPt:x",
    ]) {
      assert.doesNotMatch(render(`[x](${target})`), /<a/);
      assert.doesNotMatch(render(`[x](<${target}>)`), /<a/);
      assert.doesNotMatch(render(`<${target}>`), /<a/);
      assert.doesNotMatch(render(`[x][y]\n\n[y]: ${target}`), /<a/);
    }
    for (const target of ["https://e.org", "http://e.org", "mailto:a@e.org", "matrix:u/a:e.org"]) {
      assert.match(render(`[x](${target})`), /<a href=/);
    }
    assert.doesNotMatch(render("![x](https://example.org/x.png)"), /<img/);
  });

  it("any text becomes known elements alone, with a link's target and a code's language as the only attributes", () => {
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
    fc.assert(
      fc.property(fc.array(fragment, { maxLength: 40 }), (parts) => {
        const html = render(parts.join(""));
        for (const [, name = "", attributes = ""] of html.matchAll(element)) {
          assert.ok(known.has(name), name);
          assert.match(
            attributes,
            /^(?: href="(?:https?:\/\/|mailto:|matrix:)[^"]*"| class="language-[^"]*"| style="text-align:[a-z]+"| start="[0-9]+"| title="[^"]*")*$/i,
          );
        }
        assert.doesNotMatch(html.replace(element, ""), /</, "no other angle bracket opens anything");
      }),
      { numRuns: 3_000 },
    );
  });

  it("a code block that is cut stays a code block in both pieces", () => {
    assert.deepEqual(renderMarkdownPieces(["before\n```ts\none\n", "two\n```\nafter **x**"]), [
      '<p>before</p>\n<pre><code class="language-ts">one\n</code></pre>',
      '<pre><code class="language-ts">two\n</code></pre>\n<p>after <strong>x</strong></p>',
    ]);
  });
});
