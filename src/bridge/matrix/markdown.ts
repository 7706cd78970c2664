// Markdown of an answer as the HTML that chat clients show (Matrix client-server API, "m.room.message
// msgtypes": `formatted_body` of `org.matrix.custom.html`).
// Invariants: HTML in the answer is shown as text, never passed on; a link leads to http, https, mailto or
// matrix only; showing an answer loads nothing from elsewhere, so images stay links.
import MarkdownIt from "markdown-it";

const LINK = /^(?:https?:\/\/|mailto:|matrix:)/i;

const renderer = new MarkdownIt({ html: false, linkify: false, breaks: true, maxNesting: 20 });
renderer.disable("image");
renderer.validateLink = (url) => LINK.test(url.trim());

const FENCE = /^ {0,3}(`{3,}|~{3,})([^\n]*)$/;

/** An opened code block: what opened it, to open it again in the next event. */
interface OpenFence {
  readonly opening: string;
  readonly marker: string;
}

/** The code block that is still open at the end of a piece, given the one open at its start. */
function openFenceAfter(piece: string, before: OpenFence | undefined): OpenFence | undefined {
  let open = before;
  for (const line of piece.split("\n")) {
    const match = FENCE.exec(line);
    const marker = match?.[1];
    if (match === null || marker === undefined) continue;
    const rest = match[2] ?? "";
    if (open === undefined) {
      if (marker.startsWith("~") || !rest.includes("`")) open = { opening: line.trimStart(), marker };
    } else if (marker[0] === open.marker[0] && marker.length >= open.marker.length && rest.trim() === "") {
      open = undefined;
    }
  }
  return open;
}

/** Each piece of one Markdown text as HTML. A code block that a cut divides is one in both pieces. */
export function renderMarkdownPieces(pieces: readonly string[]): string[] {
  let open: OpenFence | undefined;
  return pieces.map((piece) => {
    const source = open === undefined ? piece : `${open.opening}\n${piece}`;
    open = openFenceAfter(piece, open);
    return renderer.render(source).trim();
  });
}

/** A text so that HTML shows it as it is, inside an element or a quoted attribute. */
export function escapeHtml(text: string): string {
  return renderer.utils.escapeHtml(text);
}

/** A text as a code block. */
export function renderCode(text: string): string {
  return `<pre><code>${escapeHtml(text)}</code></pre>`;
}
