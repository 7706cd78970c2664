// What a registry means, file by file, for one machine and for Kubernetes.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { planeOfPath, renderAll } from "../../../../src/federation/planes/render.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { ClientsFile } from "../../../../src/rendered-files/issuer-clients.ts";
import { parseYaml } from "../../../../src/runtime/load-yaml.ts";
import { assertGoldens } from "../../../support/golden.ts";
import { harbourWith, registryFiles, withText } from "../../../support/sample-files.ts";

const rendered = renderAll(loadRegistry(registryFiles()));

describe("renderAll", () => {
  it("every plane of the sample organisation is rendered as the reviewed files [GIT-1]", () => {
    assertGoldens("federation/harbour", rendered);
  });

  it("the order in which files are read changes no byte [GIT-1]", () => {
    const reversed = new Map([...registryFiles()].reverse());
    assert.deepEqual(renderAll(loadRegistry(reversed)), rendered);
  });

  it("the client of a closed partner is declared and disabled, also when it may invoke nothing [PLN-5]", () => {
    const clientsOf = (closed: boolean) => {
      const line = `classification: internal${closed ? "\nplanes:\n  gateway: closed" : ""}`;
      const path = "registry/partners/pilot-station.yaml";
      const files = harbourWith(withText(path, "classification: internal", line));
      const text = renderAll(loadRegistry(files)).get("rendered/gateway/clients.yaml") ?? "";
      return parseYaml(ClientsFile, text, "clients.yaml").clients.filter(
        ({ clientId }) => clientId === "pilot-station",
      );
    };
    assert.deepEqual(clientsOf(false), []);
    assert.deepEqual(clientsOf(true), [
      { clientId: "pilot-station", enabled: false, partner: "pilots.example" },
    ]);
  });

  it("planeOfPath knows every rendered path, and no other", () => {
    for (const path of rendered.keys()) assert.notEqual(planeOfPath(path), undefined, path);
    for (const path of ["rendered/border", "registry/partners/org-b.yaml", "rendered/other/x", "README.md"]) {
      assert.equal(planeOfPath(path), undefined, path);
    }
  });
});
