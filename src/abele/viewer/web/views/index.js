// The views of the page: names, titles, keys, and where their modules are. A module is loaded when its view is first shown.
//
// A module exports `mount(context, place)`: it fills the element `place` and returns
//   update(changed)  the state changed in these names (a Set); the view shows what it now says
//   destroy()        it goes away
//   charts           [Chart, …] that can be saved as pictures
//   commands         [{title, key?, run}] for the palette while it is shown

export const VIEWS = [
  { name: "summary", title: "Summary", key: "1", load: () => import("abele/views/summary.js") },
  { name: "timeline", title: "Timeline", key: "2", load: () => import("abele/views/timeline.js") },
  { name: "memory", title: "Memory", key: "3", load: () => import("abele/views/memory.js") },
  { name: "liveness", title: "Liveness", key: "4", load: () => import("abele/views/liveness.js") },
  { name: "program", title: "Program", key: "5", load: () => import("abele/views/program.js") },
  { name: "operations", title: "Operations", key: "6", load: () => import("abele/views/operations.js") },
  { name: "graph", title: "Graph", key: "7", load: () => import("abele/views/graph.js") },
  { name: "exchange", title: "Exchange", key: "8", load: () => import("abele/views/exchange.js") },
  { name: "matrix", title: "Matrix", key: "9", load: () => import("abele/views/matrix.js") },
  { name: "sparse", title: "Sparse", key: "o", load: () => import("abele/views/sparse.js") },
  { name: "host", title: "Host", key: "h", load: () => import("abele/views/host.js") },
  { name: "compare", title: "Compare", key: "c", load: () => import("abele/views/compare.js") },
];
