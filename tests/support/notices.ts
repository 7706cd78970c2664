// What the notice queue needs besides its ledger: English texts, and no card at hand.
import { CATALOGUES } from "../../src/bridge/texts/catalogue.ts";

export const noticeTexts = {
  textsOf: () => CATALOGUES.en,
  cards: { verifiedCard: () => undefined },
};
