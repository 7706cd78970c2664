// What the bridge says in rooms, in German.
import type { Texts } from "./en.ts";

export const DE: Texts = {
  openings: {
    policy_denied: "Ich habe diese Frage nicht weitergegeben.",
    rate_limited: "Ich habe diese Frage nicht weitergegeben: Im Moment sind es zu viele.",
    capacity_exceeded: "Ich konnte diese Frage nicht annehmen.",
    delegation_stopped: "Ich habe die Arbeit an dieser Frage beendet.",
    delegation_canceled: "Ich habe diese Frage abgebrochen, wie du wolltest.",
    cancel_refused: "Ich habe nichts abgebrochen.",
    answer_refused:
      "Ich habe deine Antwort nicht an den Agenten weitergegeben. Bitte frag in einer neuen Nachricht noch einmal.",
    delegation_failed: "Ich habe auf diese Frage keine Antwort bekommen.",
    encrypted_room_refused:
      "Dieser Raum ist verschlüsselt, und diese Bridge liest keine verschlüsselten Räume. Ich sehe also nicht, was " +
      "hier gefragt wird. Bitte frag mich in einem unverschlüsselten Raum. Wer die Bridge betreibt, entscheidet, ob " +
      "sie an verschlüsselten Räumen teilnimmt.",
    keys_missing:
      "Ich konnte verschlüsselte Nachrichten hier nicht lesen, weil ihre Schlüssel mich nicht erreicht haben. Entferne " +
      "mich aus dem Raum und lade mich wieder ein, oder lass ein Mitglied die Schlüssel des Raums mit mir teilen; frag " +
      "dann noch einmal.",
  },
  reasons: {
    answered: "Sie wurde beantwortet.",
    room_capacity_exceeded:
      "In diesem Raum warten zu viele Fragen. Frag noch einmal, wenn einige davon beantwortet sind.",
    server_capacity_exceeded:
      "Auf dieser Bridge warten zu viele Fragen von deinem Server. Frag noch einmal, wenn einige davon beantwortet sind.",
    agent_capacity_exceeded:
      "Für diesen Agenten warten zu viele Fragen. Frag in ein paar Minuten noch einmal.",
    global_capacity_exceeded:
      "Auf dieser Bridge warten zu viele Fragen. Frag in ein paar Minuten noch einmal; wer die Bridge betreibt, kann " +
      "die Grenze erhöhen.",
    sender_policy_rejected:
      "Du gehörst nicht zu denen, die diesen Agenten fragen dürfen. Wer diese Bridge betreibt, kann dich oder deinen " +
      "Server aufnehmen.",
    agent_removed:
      "Dieser Agent wird hier nicht mehr angeboten. Schreib !agents, um die angebotenen zu sehen.",
    agent_card_untrusted:
      "Die Identität dieses Agenten ist im Moment nicht bestätigt. Wer diese Bridge betreibt, kann sie wieder " +
      "bestätigen; frag dann noch einmal.",
    sender_rate_limited: "Du hast sehr oft gefragt. Frag in einer Minute noch einmal.",
    server_rate_limited:
      "Die Leute deines Servers haben sehr oft gefragt. Frag in einer Minute noch einmal. Wer diese Bridge betreibt, kann ihre Rate erhöhen.",
    rate_limited:
      "Frag in einer Minute noch einmal. Wer diese Bridge betreibt, kann die Rate dieses Agenten erhöhen oder dessen Betreiber darum bitten.",
    token_refused:
      "Diese Bridge hat keinen Zugang zum Agenten bekommen. Wer diese Bridge betreibt, muss das klären, wenn nötig mit " +
      "dem Betreiber des Agenten.",
    agent_refused:
      "Die Seite des Agenten hat die Anfrage abgelehnt. Wer diese Bridge betreibt, muss das mit dem Betreiber des " +
      "Agenten klären.",
    agent_unavailable: "Der Agent war nicht erreichbar. Frag später noch einmal.",
    agent_failed:
      "Der Agent hat gemeldet, dass er gescheitert ist. Frag noch einmal, oder stell die Frage anders.",
    agent_rejected: "Der Agent hat die Frage nicht angenommen.",
    agent_protocol_error:
      "Der Agent hat auf eine Weise geantwortet, die diese Bridge nicht versteht. Sein Betreiber kann dem nachgehen.",
    answer_too_large: "Die Antwort ist länger, als diese Bridge annimmt. Frag nach weniger auf einmal.",
    attachment_refused:
      "Dateien dieser Art bekommt dieser Agent hier nicht. Frag ohne die Datei; wer diese Bridge betreibt, entscheidet, " +
      "welche er bekommt.",
    attachment_too_large:
      "Die Datei ist größer, als dieser Agent sie bekommen darf. Schick eine kleinere; wer diese Bridge betreibt, kann " +
      "die Grenze erhöhen.",
    attachment_unreadable:
      "Die Datei lässt sich nicht lesen: Sie ist nicht mehr da, oder sie ist beschädigt. Schick sie noch einmal.",
    attachment_unavailable: "Der Homeserver hat die Datei nicht geliefert. Schick sie später noch einmal.",
    auth_required:
      "Der Agent verlangt eine Anmeldung, die diese Bridge nicht leisten kann. Sein Betreiber kann helfen.",
    input_wait_elapsed:
      "Der Agent hat etwas zurückgefragt, und niemand hat rechtzeitig geantwortet. Frag noch einmal, wenn du Zeit zum " +
      "Antworten hast.",
    questions_exceeded: "Der Agent hat zu oft zurückgefragt. Frag noch einmal und genauer.",
    outcome_unknown:
      "Die Verbindung brach ab, nachdem die Frage gesendet war. Ob der Agent sie angenommen hat, lässt sich nicht " +
      "feststellen. Frag nur dann noch einmal, wenn es doppelt nicht schadet.",
    dispatch_deadline_exceeded: "Der Agent hat sie nicht rechtzeitig angenommen. Frag später noch einmal.",
    answer_deadline_exceeded:
      "Der Agent ist nicht rechtzeitig fertig geworden. Frag später noch einmal, oder nach weniger auf einmal.",
    source_redacted: "Die Frage wurde entfernt.",
    room_unreachable:
      "Ich darf in diesem Raum nicht mehr schreiben. Wer den Raum leitet, kann es mir erlauben.",
    reply_refused:
      "Der Homeserver hat die Antwort nicht angenommen. Wer diese Bridge betreibt, kann dem nachgehen.",
    reply_deadline_exceeded:
      "Es gibt eine Antwort, aber sie konnte hier nicht rechtzeitig zugestellt werden. Frag noch einmal; wer diese " +
      "Bridge betreibt, kann dem nachgehen.",
    operator_canceled: "Wer diese Bridge betreibt, hat sie abgebrochen.",
    sender_canceled: "Du hast sie abgebrochen.",
    event_replayed:
      "Diese Nachricht wiederholt eine frühere unter anderem Namen und ist deshalb keine neue Frage.",
    event_too_old:
      "Diese Nachricht ist so alt, dass ich nicht mehr weiß, ob ich sie beantwortet habe. Frag in einer neuen Nachricht.",
    agent_turns_exceeded:
      "Mehrere Fragen folgten sofort auf meine Antworten, wie von einem Programm. Deshalb habe ich hier aufgehört. Ein " +
      "Mensch kann in einer halben Minute mit einer neuen Nachricht wieder fragen.",
    room_envelopes_exceeded:
      "Zu viele Nachrichten dieses Raums konnten noch nicht gelesen werden, weil ihre Schlüssel fehlen. Frag später " +
      "noch einmal.",
    sender_envelopes_exceeded:
      "Zu viele deiner Nachrichten konnten noch nicht gelesen werden, weil ihre Schlüssel fehlen. Vielleicht hält dein " +
      "Client sie zurück: Sieh in seinen Einstellungen zu nicht verifizierten Geräten nach.",
    server_envelopes_exceeded:
      "Zu viele Nachrichten von deinem Server konnten noch nicht gelesen werden, weil ihre Schlüssel fehlen. Frag später " +
      "noch einmal.",
    global_envelopes_exceeded:
      "Zu viele Nachrichten konnten noch nicht gelesen werden, weil ihre Schlüssel fehlen. Frag später noch einmal; wer die " +
      "Bridge betreibt, kann die Grenze erhöhen.",
    not_the_asker: "Nur wer gefragt hat, kann eine Frage abbrechen. Wer diese Bridge betreibt, kann es auch.",
    already_ended: "Diese Frage ist schon beendet.",
    nothing_to_cancel:
      "Ich weiß nicht, welche Frage du meinst. Antworte mit !cancel auf deine Frage, oder auf meine Nachricht dazu.",
    sender_device_untrusted:
      "Sie kam von einem Gerät, dem diese Bridge nicht vertraut. Verifiziere es mit deinen anderen Geräten, oder frag " +
      "den Betreiber der Bridge, welchen Geräten sie vertraut.",
  },
  noLongerRead:
    "Ich konnte verschlüsselte Nachrichten hier nicht lesen, weil diese Bridge keine verschlüsselten Räume mehr liest. " +
    "Bitte frag mich in einem unverschlüsselten Raum. Wer die Bridge betreibt, entscheidet, ob sie an verschlüsselten " +
    "Räumen teilnimmt.",
  directory: {
    none: "Im Moment werden hier keine Agenten angeboten. Wer diese Bridge betreibt, kann welche hinzufügen.",
    howToAsk: (server) =>
      `Lade einen Agenten in einen Raum ein und erwähne ihn mit deiner Frage. Agenten von ${server}:`,
    unavailable:
      "im Moment nicht verfügbar: Seine Identität ist nicht bestätigt; wer diese Bridge betreibt, kann das beheben",
    example: (example) => `Zum Beispiel: ${example}`,
    more: (count) => `… und ${count} weitere.`,
  },
  help: [
    "Erwähne einen Agenten mit deiner Frage, oder antworte auf seine Nachricht.",
    "`!agents` nennt die Agenten und was sie können.",
    "`!cancel` als Antwort auf eine Frage, oder das Entfernen der Frage, beendet die Arbeit daran.",
    "`!help` zeigt diesen Text.",
  ],
  question: {
    empty: "Ich brauche mehr Angaben, um weiterzumachen.",
    howToAnswer: "Antworte auf diese Nachricht.",
    howToChoose: "Antworte auf diese Nachricht, oder reagiere darauf mit einem dieser Zeichen.",
  },
  status: {
    working: "Der Agent arbeitet an dieser Frage.",
    waiting: "Diese Frage wartet.",
    behind: "Andere Fragen in diesem Raum kommen zuerst.",
    agent: "Der Agent hat sie noch nicht angenommen. Ich versuche es weiter.",
    away: "Der Agent ist im Moment nicht erreichbar. Ich versuche es weiter.",
    input: "Der Agent hat etwas zurückgefragt und wartet auf die Antwort.",
    delivering: "Die Antwort ist unterwegs.",
    completed: "Fertig: Die Frage ist beantwortet.",
    canceled: "Diese Frage wurde abgebrochen.",
    failed: "Diese Frage endete ohne Antwort.",
    cancel: "Reagiere auf diese Nachricht mit ❌, um die Frage abzubrechen.",
  },
  answer: {
    empty: "(Der Agent ist ohne Text fertig geworden.)",
    continued: "Die ganze Antwort steht im Thread der Frage.",
  },
};
