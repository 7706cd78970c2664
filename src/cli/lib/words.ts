// The words that the commands about partners use without saying each time what they mean.

export const WORDS_HELP = `
Words:
  partner    another organisation, by its server name or the name of its file in registry/partners
  planes     where a partner is let in: 1 transport, 2 rooms, 3 border, 4 card, 5 gateway.
             They are closed in the order 5, 4, 2, 3, 1 and opened the other way round.
  registry   the files of the organisation's git repository that say who is a partner
  head       the newest commit of that repository's branch; in force once every plane has been brought to it
  work tree  a clone of that repository, with files to edit
  probe.yaml what a partner has lent, so that one can look as the partner does
ARCHITECTURE.md says more; docs/operating has a page for each thing that an operator does.`;
