// Colours. Sequences get theirs from a palette that people with any colour vision can tell apart, and each sequence
// also has a letter. All other colours come from the style sheet, in its light or its dark version.

// The seven colours of Okabe and Ito, and then five colours between them for a pool with more sequences.
const PALETTE = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#cc79a7",
  "#56b4e9",
  "#d55e00",
  "#d8c930",
  "#7b6fd6",
  "#8a8a2a",
  "#b0477f",
  "#3fb5a3",
  "#9c755f",
];
const NUM_COLOURS = PALETTE.length;

const inkOn = PALETTE.map((colour) => {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const channel = parseInt(colour.slice(at, at + 2), 16) / 255;
    return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) ? "#000000" : "#ffffff";
});

/** The style sheet's colours as they are now. */
function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: read("ink"),
    muted: read("muted"),
    line: read("line"),
    panel: read("panel"),
    empty: read("empty"),
    accent: read("accent"),
    alarm: read("alarm"),
    swap: read("swap"),
    font: read("font"),
    kinds: KINDS.map(([kind]) => read(`kind-${kind}`)),
  };
}
