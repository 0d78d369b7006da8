// Colours of what tiles hold: the same for a name in every chart.

const PLACES = {
  variables: 0, temporaries: 1, vertex_state: 2, vertex_code: 3, control_code: 4, exchange_code: 5, stacks: 6, stream_buffers: 7,
  "always live": 0, "not always live": 1, "not interleaved": 0, interleaved: 2, "in use": 0, "data in motion": 5, "other variables": 9,
};

/** The colour of a part of a stacked curve. */
export function partColour(name, index, theme) {
  if (name === "gaps" || name === "others") return theme.parts.idle === theme.back ? theme.rule : theme.dark ? "#4b5563" : "#b8c0cb";
  if (name === "too much") return theme.bad;
  return theme.series[(PLACES[name] ?? index) % theme.series.length];
}

/** The colour of what a live curve stacks: what is always live is the quiet base. */
export function liveColour(name, index, theme) {
  if (name === "always live") return theme.dark ? "#3d4f66" : "#b9c9dc";
  if (name === "data in motion") return theme.parts.exchange;
  if (name === "variables" || name === "not always live") return theme.series[0];
  if (name === "others") return theme.series[8];
  return theme.series[[0, 2, 3, 5, 6, 7, 9, 10, 11][index % 9]];
}

/** A part's name for people; names of variables and scopes stay as they are. */
export const titleOf = (name) => (name in PLACES ? name.replaceAll("_", " ") : name);
