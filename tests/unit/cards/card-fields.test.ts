import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MESSAGES } from "../../../src/cards/card-fields.ts";
import { fixture } from "../../support/cards.ts";

interface DeclaredField {
  readonly type: string;
  readonly shape: string;
  readonly presence: string;
  readonly oneof: boolean;
}

describe("fields of a card", () => {
  it("the fields equal those of a2a.proto, with types and presence [AGT-3]", () => {
    const declared = JSON.parse(fixture("a2a-proto-fields.json").toString()) as Record<
      string,
      Record<string, DeclaredField>
    >;
    const known = Object.fromEntries(
      Object.entries(MESSAGES).map(([name, { fields, oneof }]) => [
        name,
        Object.fromEntries(
          Object.entries(fields).map(([field, { type, shape, presence }]) => [
            field,
            { type: type === "struct" ? "Struct" : type, shape, presence, oneof },
          ]),
        ),
      ]),
    );
    assert.deepEqual(known, declared);
  });
});
