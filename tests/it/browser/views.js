// Returns the faults of a page at the current window size, in words. `part` is "layout" or "colours". `isDesk` is whether the window is
// that of a laptop, where tables show all columns without scrolling.
(part, isDesk) => {
  const faults = [];
  const root = document.documentElement;
  const name = (e) => `${e.tagName.toLowerCase()}.${e.getAttribute("class") ?? ""} "${(e.innerText ?? e.textContent ?? "").trim().slice(0, 60)}"`;
  const report = (fault, e) => { if (faults.length < 10) faults.push(`${fault}: ${name(e)}`); };
  const isSeen = (e) => e.checkVisibility() && e.getBoundingClientRect().width > 0;
  const textsOf = () => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    while (walker.nextNode()) {
      const e = walker.currentNode.parentElement;
      if (walker.currentNode.data.trim() && isSeen(e) && !e.closest("option, script")) found.push(walker.currentNode);
    }
    return found;
  };

  const checkWidths = () => {
    if (root.scrollWidth > root.clientWidth) faults.push(`the page is ${root.scrollWidth} px wide in a window of ${root.clientWidth}`);
    for (const e of document.body.querySelectorAll("*")) {
      if (e.closest(".scroll, svg svg, svg > *") || !e.checkVisibility()) continue;
      const box = e.getBoundingClientRect();
      // Elements entirely left of the window are hidden deliberately.
      const isHidden = box.width === 0 || box.right <= 0;
      if (!isHidden && (box.right > root.clientWidth + 1 || box.left < -1)) report("outside of the window", e);
    }
    if (!isDesk) return;
    for (const e of document.querySelectorAll(".scroll, table")) {
      if (e.scrollWidth > e.clientWidth + 1) report("columns are cut", e);
    }
  };

  // A text must not leave the box that contains it.
  const checkTexts = () => {
    const range = document.createRange();
    for (const text of textsOf()) {
      const e = text.parentElement;
      const box = e.closest("td, th, li, dd, dt, button, .button, .chip, .tile, .notice, .panel");
      if (!box || e.closest("svg")) continue;
      range.selectNodeContents(text);
      const [own, around] = [range.getBoundingClientRect(), box.getBoundingClientRect()];
      if (own.right > around.right + 1 || own.left < around.left - 1) report(`text leaves ${name(box)}`, e);
    }
  };

  // Links within text are as high as their line; the label of a checkbox can be clicked as well.
  const checkControls = () => {
    const selector = "button, .button, input:not([type=hidden]), select, textarea, summary, .side li a, .mark";
    const controls = [...document.querySelectorAll(selector)].filter(isSeen);
    for (const e of controls) {
      const box = (e.type === "checkbox" && e.closest("label") || e).getBoundingClientRect();
      if (box.height < 23.9 || box.width < 23.9) report(`a control of ${box.width.toFixed(0)} by ${box.height.toFixed(0)} px`, e);
    }
    const links = [...document.querySelectorAll("main a[href]:not(.button), header a[href]")].filter((e) => isSeen(e) && !e.closest("svg"));
    const boxes = [...new Set([...controls, ...links])].flatMap((e) => [...e.getClientRects()].map((box) => ({ e, box })));
    boxes.sort((a, b) => a.box.top - b.box.top);
    boxes.forEach((one, i) => {
      for (let j = i + 1; j < boxes.length && boxes[j].box.top < one.box.bottom - 2; j += 1) {
        const two = boxes[j];
        if (one.e.contains(two.e) || two.e.contains(one.e) || two.box.bottom < one.box.top + 2) continue;
        const shared = Math.min(one.box.right, two.box.right) - Math.max(one.box.left, two.box.left);
        if (shared > 1) report(`covers ${name(two.e)}`, one.e);
      }
    });
  };

  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => {
    const mix = (of) => top[of] * top.a + below[of] * (1 - top.a);
    return { r: mix("r"), g: mix("g"), b: mix("b"), a: 1 };
  };
  const light = ({ r, g, b }) => {
    const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const contrast = (one, two) => {
    const [high, low] = [light(one), light(two)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const backgroundOf = (e) => {
    const own = parse(getComputedStyle(e).backgroundColor);
    if (own.a === 1 || !e.parentElement) return own;
    return over(own, backgroundOf(e.parentElement));
  };
  // The text of a drawing has an outline in the colour behind it, or is on the mark before it.
  const backgroundOfDrawn = (e, style) => {
    if (style.stroke !== "none") return parse(style.stroke);
    const mark = e.previousElementSibling && getComputedStyle(e.previousElementSibling).fill;
    return e.matches(".number") && mark && mark !== "none" ? parse(mark) : backgroundOf(e.closest("svg"));
  };
  const checkColours = () => {
    const known = new Map();
    const check = (e, colour, behind, what) => {
      const pair = `${colour} ${JSON.stringify(behind)}`;
      if (!known.has(pair)) known.set(pair, contrast(over(parse(colour), behind), behind));
      if (known.get(pair) < 4.5) report(`${what} has a contrast of ${known.get(pair).toFixed(2)}`, e);
    };
    for (const text of textsOf()) {
      const e = text.parentElement;
      const style = getComputedStyle(e);
      const isDrawn = e instanceof SVGElement;
      if (isDrawn) check(e, style.fill, backgroundOfDrawn(e, style), "text of a drawing");
      else check(e, style.color, backgroundOf(e), "text");
    }
    for (const e of document.querySelectorAll("input:not([type=hidden], [type=checkbox]), select, textarea")) {
      if (!isSeen(e)) continue;
      check(e, getComputedStyle(e).color, backgroundOf(e), "a value");
      if (e.placeholder) check(e, getComputedStyle(e, "::placeholder").color, backgroundOf(e), "a placeholder");
    }
  };

  if (part === "layout") {
    checkWidths();
    checkTexts();
    checkControls();
  } else {
    checkColours();
  }
  return faults;
}
