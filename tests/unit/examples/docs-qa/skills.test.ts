import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { cardSkills, selectSkill } from "../../../../examples/docs-qa/skills/catalogue.ts";
import { chosenOption } from "../../../../examples/docs-qa/skills/skill.ts";

describe("the skills of the sample agent", () => {
  it("each example in the card selects its skill, and the words that select it are not searched for", () => {
    for (const { id, examples } of cardSkills("org A")) {
      for (const example of examples) assert.equal(selectSkill(example).id, id, example);
    }
    assert.equal(selectSkill("Survey the documents about tokens").question, "about tokens");
    assert.equal(selectSkill("What is in a surveyor's file?").id, "answer-from-documents");
  });

  it("a reply chooses an option by its number or its label, and an unclear one chooses none", () => {
    const options = ["Green tea", "Filter coffee"];
    for (const [reply, index] of [
      ["1", 0],
      [" 2. ", 1],
      ["(1)", 0],
      ["filter COFFEE please", 1],
      ["3", undefined],
      ["", undefined],
      ["tea", undefined],
      ["green tea or filter coffee", undefined],
    ] as const) {
      assert.equal(chosenOption(options, reply), index, reply);
    }
  });
});
