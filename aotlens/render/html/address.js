/* Addresses: `#TARGET/TAB/KEY` selects a target, a tab, and there a list, a row or a line of the source. */

/** Characters that would end a part of an address or the address itself are escaped; all others stay readable. */
function escapePart(text, isLast) {
  const escaped = text.replace(/[%#\s"<>`^|]/g, (character) => encodeURIComponent(character));
  return isLast ? escaped : escaped.replaceAll("/", "%2F");
}

function addressOf(parts) {
  return `#${parts.filter((part) => part !== "").map((part, index) => escapePart(part, index === 2)).join("/")}`;
}

/** The parts of an address: target, tab, and the rest as a key. */
function partsOf(hash) {
  const [target = "", tab = "", ...key] = hash.replace(/^#/, "").split("/");
  return [target, tab, key.join("/")].map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part; // a stray % of a typed address is left as typed
    }
  });
}

/** `open(parts)` is called for each address that the browser goes to: the first one, back, forward, a typed one. */
class Address {
  constructor(open) {
    this.open = open;
    this.isOpening = false;
    addEventListener("hashchange", () => this.read());
  }

  read() {
    this.isOpening = true;
    try {
      this.open(partsOf(location.hash));
    } finally {
      this.isOpening = false;
    }
  }

  /** Shows where the reader is; a step can be gone back to, moves within a list replace each other. */
  set(parts, isStep) {
    const address = addressOf(parts);
    if (this.isOpening || address === location.hash) return;
    if (isStep) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }
}
