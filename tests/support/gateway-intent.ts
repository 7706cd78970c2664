// What a gateway's files mean, from one value that tests like to write: the agents with card and callers.
import { stringify } from "yaml";
import { type AccessRules, mergeAccessRules } from "../../src/gateway/access-rules.ts";
import { InvocationFile, PublicationFile } from "../../src/rendered-files/gateway-files.ts";
import { parseYaml } from "../../src/runtime/load-yaml.ts";
import { type AdmissionInput, admissionFiles } from "./gateway-files.ts";

/** @throws ConfigError as the gateway would */
export function testIntent(input: AdmissionInput): AccessRules {
  const { publication, invocation } = admissionFiles(input);
  const [cards, callers] = [stringify(publication), stringify(invocation)];
  return mergeAccessRules(
    {
      file: "publication.yaml",
      text: cards,
      value: parseYaml(PublicationFile, cards, "publication.yaml"),
    },
    { file: "invocation.yaml", text: callers, value: parseYaml(InvocationFile, callers, "invocation.yaml") },
  );
}
