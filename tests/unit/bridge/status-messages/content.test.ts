import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  editContent,
  firstContent,
  REPORT_CHARACTERS_MAX,
  statusText,
} from "../../../../src/bridge/status-messages/send-status-messages.ts";
import { EN } from "../../../../src/bridge/texts/en.ts";
import type { EventId } from "../../../../src/domain/identifiers.ts";

const shown = (report: string) => {
  const facts = { state: "following", isBehind: false, retryReason: undefined, report } as const;
  return statusText(facts, EN);
};

describe("what an agent reports about its work", () => {
  it("is one line of bounded length, however much it is [AGT-4] [DEL-6]", () => {
    const { body, html } = shown("a long report\n".repeat(100_000));
    const line = body.split("\n").find((one) => one.startsWith("> ")) ?? "";
    assert.equal([...line].length, REPORT_CHARACTERS_MAX + 2);
    assert.equal(body.split("\n").length, 3);
    assert.ok(html.length < 1_000);
  });

  it("is shown as text: no HTML, no script, no mention of a room or a person, nothing that is loaded [AGT-4] [DEL-6]", () => {
    const { body, html } = shown(
      '<script>alert(1)</script> <img src="https://evil.test/x"> @room [you](https://matrix.to/#/@bob:a.test) ' +
        "![seen](https://evil.test/pixel) <a href='matrix:u/bob:a.test'>bob</a> \u202egnp.exe",
    );
    assert.doesNotMatch(html, /<(?!\/?(?:p|blockquote|a|em|strong|code)\b)/);
    assert.doesNotMatch(html, /<a [^>]*matrix/);
    assert.doesNotMatch(html, /<img|<script|javascript:/i);
    assert.match(html, /&lt;script&gt;alert\(1\)&lt;\/script&gt;/);
    for (const text of [body, html]) {
      assert.doesNotMatch(text, /@room\b/);
      assert.doesNotMatch(text, /\u202e/);
    }
  });

  it("mentions nobody in the message or in an edit of it [AGT-4]", () => {
    const text = shown("@room @bob:a.test");
    const source = { sourceEventId: "$q" as EventId, threadRoot: undefined };
    assert.deepEqual(firstContent(text, source)["m.mentions"], {});
    const edit = editContent(text, "$s" as EventId);
    assert.deepEqual(edit["m.mentions"], {});
    assert.deepEqual((edit["m.new_content"] as Record<string, unknown>)["m.mentions"], {});
  });
});
