// The mention that a message begins with, as clients write it: in the text the name that they show, in its HTML a link to the
// user (Matrix client-server API, "User and room mentions"). Pure.
import { parseUserId, type UserId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";

export interface LeadingMention {
  readonly user: UserId;
  readonly name: string;
}

/** What a reply quotes, in front of what it says itself. */
const QUOTED = "<mx-reply>";
const QUOTED_END = "</mx-reply>";
const LINK =
  /^\s*(?:<p>)?<a href="https:\/\/matrix\.to\/#\/([^"?]{1,1000})[^">]{0,1000}">([^<]{1,1000})<\/a>/;
const ENTITIES: Readonly<Record<string, string>> = {
  ...{ "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&nbsp;": "\u00a0" },
};

export function leadingMention({ formatted_body: html }: UnknownObject): LeadingMention | undefined {
  if (typeof html !== "string") return undefined;
  const own = html.startsWith(QUOTED) ? html.slice(html.indexOf(QUOTED_END) + QUOTED_END.length) : html;
  const [, link = "", name = ""] = LINK.exec(own) ?? [];
  const user = parseUserId(decoded(link));
  return user && { user, name: name.replace(/&[#a-z0-9]+;/g, (entity) => ENTITIES[entity] ?? entity) };
}

function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}
