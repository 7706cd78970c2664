// Plain values as block YAML. Invariant: the same value always gives the same text, which gives the value again, also to
// a YAML 1.1 reader such as the homeserver's: what it would read differently is quoted.
import { stringify } from "yaml";

export type Plain = string | number | boolean | null | readonly Plain[] | PlainMap;

/** Members that are undefined are left out. */
export type PlainMap = { readonly [key: string]: Plain | undefined };

const HEAD =
  "# Rendered from registry/ by `drawbridge federation render`: change the registry, not this file.\n";

const OPTIONS = {
  aliasDuplicateObjects: false,
  blockQuote: "literal",
  compat: "yaml-1.1",
  lineWidth: 0,
  singleQuote: false,
} as const;

export function yamlFile(value: PlainMap): string {
  return `${HEAD}${stringify(value, OPTIONS)}`;
}

export function yamlDocuments(values: readonly PlainMap[]): string {
  return `${HEAD}${values.map((value) => `---\n${stringify(value, OPTIONS)}`).join("")}`;
}
