// A client with which the counterparty had applied, and which the organisation still declares: it belongs to the removal.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { withRun } from "../../../../src/federation/offboarding/run/context.ts";
import { next } from "../../../../src/federation/offboarding/steps/next-or-run.ts";
import { commitStage } from "../../../../src/federation/offboarding/steps/prove-stage.ts";
import { PLANE_NAMES } from "../../../../src/federation/plane-order.ts";
import { commitRegistry } from "../../../support/control-repository.ts";
import { setPlane } from "../../../support/edit-partner.ts";
import { makeParties, openRunAt, openSide } from "../../../support/offboarding.ts";
import { A, B } from "../../../support/offboarding-planes.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const ORGANISATION = "registry/organisation.yaml";
const ENTRY = "registry/partners/b.yaml";
const CLIENT = "b-applicant";

describe("a removal of a partner that had applied with a client", () => {
  it("a removal has to show that the client is closed, and retires it [OFF-5]", async (t) => {
    const directory = temporaryFolder(t);
    await makeParties(directory);
    const { federation, context, ...side } = await openSide(directory, A);
    const { repository } = federation;
    const read = async (path: string) =>
      (await repository.read(await repository.requireHead(), ["registry"])).get(path) ?? "";
    const declared = `clients:\n  - {clientId: ${CLIENT}, applicant: ${B}, secret: {file: client-secrets/${CLIENT}}, invokes: [docs-qa]}\n`;
    await commitRegistry(repository, new Map([[ORGANISATION, (await read(ORGANISATION)) + declared]]));
    const run = await openRunAt({ federation, context, ...side });
    assert.deepEqual(run.baseline.scope.applicants, [CLIENT]);

    // The scripted plane says nothing of this client.
    const { did, progress } = await next(context);
    assert.equal(did, "not_proved");
    const lacking = progress?.proof?.conditions.filter(({ verdict }) => verdict !== "met") ?? [];
    assert.deepEqual(
      lacking.map(({ condition, verdict, found }) => [condition, verdict, found.includes(CLIENT)]),
      [
        ["partner_not_rendered", "unknown", true],
        ["token_refused", "unknown", true],
      ],
    );
    const rendered = progress?.proof?.items.filter(({ probe }) => probe === "render") ?? [];
    assert.deepEqual(
      rendered.map(({ subject, verdict }) => [subject, verdict]),
      [
        [`${B[0]}-bridge`, "closed"],
        [CLIENT, "closed"],
      ],
    );

    let text = await read(ENTRY);
    for (const plane of PLANE_NAMES) if (plane !== "transport") text = setPlane(text, plane, "closed");
    await commitRegistry(repository, new Map([[ENTRY, text]]));
    await withRun(context, run.run, (context) => commitStage(context, "transport"));
    const { retired } = parse(await read(ENTRY)) as { retired: { clients: string[] } };
    assert.deepEqual(retired.clients, [`${B[0]}-bridge`, CLIENT]);
  });
});
