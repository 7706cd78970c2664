// What options that name a server, an address or the like may hold.
import { InvalidArgumentError } from "commander";
import { parseServerName } from "../../domain/identifiers.ts";

/** @param parse undefined for a text that the option may not hold */
export function parser<Value>(what: string, parse: (text: string) => Value | undefined) {
  return (text: string): Value => {
    const value = parse(text);
    if (value === undefined) throw new InvalidArgumentError(`It is no ${what}.`);
    return value;
  };
}

export const serverName = parser("Matrix server name", (text) => parseServerName(text));

export const httpUrl = parser("http or https URL", (text) =>
  /^https?:$/.test(URL.parse(text)?.protocol ?? "") ? text : undefined,
);
