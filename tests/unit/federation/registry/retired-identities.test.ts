// Retired identities: refused wherever they would be used again, and left alone where they are not in use.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { retireAll } from "../../../../src/federation/registry/partner.ts";
import { thumbprintOf, withCardKeys } from "../../../../src/federation/registry/retired-identities.ts";
import {
  lostRetirement,
  retirementsIn,
} from "../../../../src/federation/registry/retired-identities-checks.ts";
import { editYaml } from "../../../../src/runtime/edit-yaml.ts";
import { editsForLighthouse } from "../../../support/edit-partner.ts";
import { harbourWith, problemsOf, registryFiles } from "../../../support/sample-files.ts";

const ORGANISATION = "registry/organisation.yaml";
const SERVER = "matrix.lighthouse.example:8448";
const LIGHTHOUSE = "registry/partners/lighthouse.yaml";
const PILOTS = "registry/partners/pilot-station.yaml";
const WEATHER = {
  x: "7M4zw-3WL933Y1rc0Psh9yHgoiGqMvTTBeEN0B4t5Yk",
  y: "JXz5JKJurYNADKYvIrJ_2KD56WGOecC4g6DplvYH7Bk",
};
const HANDBOOK = {
  x: "2UNDKGmCLS_fbrtafEP3pkRTUhppoOIHI9S9Ne_WTOU",
  y: "LQ-WSL4W6OKCtF4C9Z_u1hCcXEebXK8pDgT1Uxy08Ls",
};

function retiring(file: string, retired: object, planes?: object): Map<string, string> {
  const text = registryFiles().get(file) ?? "";
  const edits = [{ path: ["retired"], value: retired }];
  return new Map([
    [file, editYaml(text, planes === undefined ? edits : [...edits, { path: ["planes"], value: planes }])],
  ]);
}

function rules(changes: ReadonlyMap<string, string>): string[] {
  return problemsOf(changes).map(({ file, path, rule }) => `${file.split("/").at(-1)} ${path} ${rule}`);
}

describe("retired identities", () => {
  it("no plane may be open to a partner whose client is retired, and none is refused while all are closed [OFF-5]", () => {
    const all = { transport: "closed", rooms: "closed", border: "closed", card: "closed", gateway: "closed" };
    const text = registryFiles().get(LIGHTHOUSE) ?? "";
    const retiring = editsForLighthouse({ plane: "transport", direction: "closed", edit: "retire" });
    const removed = (planes: object) =>
      rules(new Map([[LIGHTHOUSE, editYaml(text, [...retiring, { path: ["planes"], value: planes }])]]));
    assert.deepEqual(removed({ ...all, transport: "closed" }), []);
    for (const plane of ["transport", "rooms", "border", "card"]) {
      assert.ok(
        removed({ ...all, [plane]: "open" }).includes(`lighthouse.yaml planes.${plane} retired_partner`),
        plane,
      );
    }
    assert.ok(removed({ ...all, gateway: "open" }).includes("lighthouse.yaml azp retired_client"));
  });

  it("a retired client with which a partner had applied stays declared only while its gateway plane is closed [RDM-1]", () => {
    const at = (plane: string) =>
      rules(
        new Map([
          [ORGANISATION, (registryFiles().get(ORGANISATION) ?? "").replace("matrix.gull.example", SERVER)],
          [
            LIGHTHOUSE,
            editYaml(registryFiles().get(LIGHTHOUSE) ?? "", [
              { path: ["planes", "gateway"], value: plane },
              { path: ["retired"], value: { clients: ["gull-applicant"] } },
            ]),
          ],
        ]),
      );
    assert.deepEqual(at("open"), ["organisation.yaml clients.1.clientId retired_client"]);
    assert.deepEqual(at("closed"), []);
  });

  it("an organisation's own retired keys may become more and never fewer [RDM-1]", () => {
    const retiring = (...cardKeys: object[]) =>
      loadRegistry(harbourWith(new Map([[ORGANISATION, editOrganisation({ cardKeys })]])));
    const editOrganisation = (value: object) =>
      editYaml(registryFiles().get(ORGANISATION) ?? "", [{ path: ["retired"], value }]);
    const one = { keyId: "old", thumbprint: `sha256:${"1".repeat(64)}` };
    const two = { keyId: "older" };
    const lost = (earlier: object[], later: object[]) =>
      lostRetirement(retirementsIn(retiring(...earlier)), retiring(...later));
    assert.deepEqual(lost([one], [two, one]), []);
    assert.deepEqual(lost([two], [{ ...two, thumbprint: one.thumbprint }]), [], "more is known of it");
    assert.deepEqual(lost([one, two], [one]), [ORGANISATION]);
    assert.deepEqual(lost([one], [{ keyId: "old" }]), [ORGANISATION]);
    assert.deepEqual(lost([one], [{ ...one, keyId: "new" }]), [ORGANISATION]);
  });

  it("a card key that one partner has retired is refused in every entry, with its line and a hint [RDM-1]", () => {
    const key = { keyId: "old", thumbprint: thumbprintOf(WEATHER) };
    const changes = retiring(PILOTS, { cardKeys: [key] });
    assert.deepEqual(rules(changes), [
      "lighthouse.yaml card.consumes.lighthouse-weather.cardIdentity retired_card_key",
    ]);
    const [problem] = problemsOf(changes);
    assert.equal(problem?.line, 16);
    assert.match(problem?.hint ?? "", /fresh key/);
    const own = retiring(ORGANISATION, { cardKeys: [{ keyId: "old", thumbprint: thumbprintOf(HANDBOOK) }] });
    assert.deepEqual(rules(own), [
      "organisation.yaml agents.docs-qa.cardKeys.0 retired_card_key",
      "organisation.yaml consumes.docs-qa.cardIdentity retired_card_key",
    ]);
  });

  it("a retired key ID is refused in its own entry, and a retired client in every entry [RDM-1]", () => {
    assert.deepEqual(rules(retiring(PILOTS, { cardKeys: [{ keyId: "lighthouse-card-3" }] })), []);
    assert.deepEqual(rules(retiring(LIGHTHOUSE, { cardKeys: [{ keyId: "lighthouse-card-3" }] })), [
      "lighthouse.yaml keyIds.card.0 retired_card_key",
      "lighthouse.yaml card.consumes.lighthouse-weather.cardIdentity retired_card_key",
    ]);
    assert.deepEqual(rules(retiring(PILOTS, { clients: ["lighthouse-bridge", "harbour-bridge"] })), [
      "organisation.yaml clients.0.clientId retired_client",
      "lighthouse.yaml azp retired_client",
    ]);
    assert.deepEqual(rules(retiring(LIGHTHOUSE, { serverKeys: ["ed25519:a_Lh7Q"] })), [
      "lighthouse.yaml keyIds.server.0 retired_server_key",
    ]);
  });

  it("an entry may retire what it pins while its planes are closed, and is refused once they are open [RDM-1]", () => {
    const registry = loadRegistry(registryFiles());
    const entry = registry.partners[1] ?? assert.fail();
    const retired = retireAll(registry, entry.partner);
    assert.deepEqual(retired, {
      cardKeys: [{ keyId: "lighthouse-card-3", thumbprint: thumbprintOf(WEATHER) }],
      clients: ["lighthouse-bridge"],
      serverKeys: ["ed25519:a_Lh7Q"],
    });
    assert.deepEqual(retireAll(registry, { ...entry.partner, retired }), retired, "again changes nothing");
    const closed = {
      transport: "closed",
      rooms: "closed",
      border: "closed",
      card: "closed",
      gateway: "closed",
    };
    assert.deepEqual(rules(retiring(LIGHTHOUSE, retired, closed)), []);
    for (const plane of ["transport", "card", "gateway"] as const) {
      assert.notDeepEqual(rules(retiring(LIGHTHOUSE, retired, { ...closed, [plane]: "open" })), [], plane);
    }
    assert.equal(loadRegistry(harbourWith(retiring(LIGHTHOUSE, retired, closed))).partners.length, 4);
  });

  it("withCardKeys keeps every retired key once [RDM-1]", () => {
    const key = fc.record(
      {
        keyId: fc.constantFrom("a", "b", "c"),
        thumbprint: fc.constantFrom(thumbprintOf(WEATHER), thumbprintOf(HANDBOOK)),
      },
      { requiredKeys: ["keyId"] },
    );
    fc.assert(
      fc.property(fc.array(key), fc.array(key), (present, more) => {
        const all = withCardKeys(withCardKeys([], present), more);
        for (const one of [...present, ...more]) {
          assert.ok(
            all.some(
              ({ keyId, thumbprint }) => keyId === one.keyId && (one.thumbprint ?? thumbprint) === thumbprint,
            ),
          );
        }
        assert.deepEqual(withCardKeys(all, [...present, ...more]), all);
      }),
    );
  });
});
