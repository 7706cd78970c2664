// Setting `contained`, or one plane, in a partner's file without touching anything else of it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { PLANE_NAMES } from "../../../../src/federation/plane-order.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { findPartner } from "../../../../src/federation/registry/partner.ts";
import { stepEdits } from "../../../../src/federation/workflow/plan.ts";
import { editYaml } from "../../../../src/runtime/edit-yaml.ts";
import { setContained, setPlane } from "../../../support/edit-partner.ts";
import { registryFiles } from "../../../support/sample-files.ts";

describe("setContained and setPlane", () => {
  it("setContained sets the flag in place, and leaves every other byte [CON-1]", () => {
    const cases: readonly (readonly [string, string])[] = [
      [
        "# Ours.\nversion: 1\ncontained:   false   # until when?\nazp: 'b'\n",
        "# Ours.\nversion: 1\ncontained:   true   # until when?\nazp: 'b'\n",
      ],
      [
        "version: 1\nclassification: internal # agreed\n\nazp: b\n",
        "version: 1\nclassification: internal # agreed\n\nazp: b\ncontained: true\n",
      ],
      ["classification: internal", "classification: internal\ncontained: true\n"],
      ["version: 1\r\ncontained: false\r\nazp: b\r\n", "version: 1\r\ncontained: true\r\nazp: b\r\n"],
      [
        "{version: 1, classification: internal, azp: b}\n",
        "{ version: 1, classification: internal, azp: b, contained: true }\n",
      ],
      ['"contained": no\nclassification: internal\n', '"contained": true\nclassification: internal\n'],
      [
        "classification: internal\ncard: {contained: false}\n",
        "classification: internal\ncard: { contained: false }\ncontained: true\n",
      ],
    ];
    for (const [before, after] of cases) assert.equal(setContained(before, true), after);
  });

  it("setContained restores the text when it is set and reset [CON-1]", () => {
    const text = "# a\nversion: 1\nclassification: internal   # b\ncontained: false # c\nazp: b\n";
    assert.equal(setContained(setContained(text, true), false), text);
  });

  it("setContained leaves the meaning of everything else, whatever a file holds [CON-1]", () => {
    const line = fc.constantFrom(
      "azp: b",
      "issuer: https://b.test # x",
      "# only a comment",
      "",
      "card:\n  consumes: {}",
      "rooms: { whenRemoved: retire }",
      "keyIds:\n  - 'a: b'",
    );
    fc.assert(
      fc.property(
        fc.uniqueArray(line, { maxLength: 7 }),
        fc.uniqueArray(line, { maxLength: 7 }),
        fc.constantFrom("", "contained: false\n", "contained: true # why\n"),
        fc.boolean(),
        (before, after, flag, contained) => {
          const known = new Set(before);
          const rest = after.filter((one) => !known.has(one));
          const text = [...before, "classification: internal", flag.trim(), ...rest, ""].join("\n");
          const edited = setContained(text, contained);
          const { contained: said, ...others } = parse(edited) as Record<string, unknown>;
          const { contained: _, ...wanted } = parse(text) as Record<string, unknown>;
          assert.equal(said, contained);
          assert.deepEqual(others, wanted);
          const lost = text
            .split("\n")
            .filter((one) => !one.startsWith("contained") && !edited.split("\n").includes(one));
          assert.deepEqual(lost, []);
        },
      ),
    );
  });

  it("setPlane closes a plane in place, and leaves every other byte [OFF-2]", () => {
    const cases: readonly (readonly [string, string])[] = [
      [
        "# Ours.\nplanes:\n    gateway:  open  # since May\n    card: open\nazp: 'b'\n",
        "# Ours.\nplanes:\n    gateway:  closed  # since May\n    card: open\nazp: 'b'\n",
      ],
      [
        "planes:\n    card: open # kept\n    rooms: open # too\nazp: 'b'\n",
        "planes:\n  card: open # kept\n  rooms: open # too\n  gateway: closed\nazp: 'b'\n",
      ],
      [
        "classification: internal # agreed\n\nazp: b\n",
        "classification: internal # agreed\n\nazp: b\nplanes:\n  gateway: closed\n",
      ],
      ["planes:\r\n  gateway: open\r\nazp: b\r\n", "planes:\r\n  gateway: closed\r\nazp: b\r\n"],
      [
        "classification: internal\nplanes: {rooms: open}\n",
        "classification: internal\nplanes: { rooms: open, gateway: closed }\n",
      ],
      ["classification: internal", "classification: internal\nplanes:\n  gateway: closed\n"],
    ];
    for (const [before, after] of cases) assert.equal(setPlane(before, "gateway", "closed"), after);
  });

  it("setPlane changes one plane alone, whatever the layout of the file [OFF-2]", () => {
    const layouts = fc.constantFrom(
      "",
      "planes: {}\n",
      "planes: {gateway: open, rooms: closed}\n",
      "planes:\n  rooms: closed # why\n  card: open\n",
      "planes:\n  ? card\n  : open\n",
    );
    const plane = fc.constantFrom("transport", "rooms", "border", "card", "gateway");
    fc.assert(
      fc.property(layouts, fc.array(fc.tuple(plane, fc.boolean()), { maxLength: 8 }), (planes, changes) => {
        let text = `version: 1\nclassification: internal\n${planes}azp: b # end\n`;
        const wanted: Record<string, string> = { ...(parse(text) as { planes?: object }).planes };
        for (const [name, open] of changes) {
          wanted[name] = open ? "open" : "closed";
          text = setPlane(text, name, open ? "open" : "closed");
        }
        const { planes: said = {}, ...others } = parse(text) as Record<string, unknown>;
        assert.deepEqual(said, wanted);
        assert.deepEqual(others, { version: 1, classification: "internal", azp: "b" });
        assert.ok(text.includes("azp: b # end"));
      }),
    );
  });
});

describe("stepEdits", () => {
  it("stepEdits retires a key that another entry pins once, however often it is repeated [OFF-2]", () => {
    const [own, other] = ["registry/partners/lighthouse.yaml", "registry/partners/dredger.yaml"];
    const files = registryFiles();
    const edit = (file: string, edits: Parameters<typeof editYaml>[1]) => {
      const text = editYaml(files.get(file) ?? assert.fail(), edits);
      files.set(file, text);
      return text;
    };
    const weather = parse(files.get(own) ?? "").card.consumes["lighthouse-weather"] as unknown;
    edit(other, [{ path: ["card", "consumes", "weather"], value: weather }]);
    for (const plane of PLANE_NAMES) edit(own, [{ path: ["planes", plane], value: "closed" }]);
    const retire = () => {
      const registry = loadRegistry(files);
      const step = { plane: "transport", direction: "closed", edit: "retire" } as const;
      return edit(own, stepEdits(step, registry, findPartner(registry, "lighthouse")));
    };
    const first = retire();
    assert.deepEqual(parse(first).retired.cardKeys, [{ keyId: "lighthouse-card-3" }]);
    assert.equal(retire(), first);
  });
});
