// The page as one file begins here: its modules lie in it compressed, and an import map leads their names to them.
//
// No module: an import map has to be there before the first one. The content policy knows the map by its hash, so that
// abele.viewer.static writes the same one, to the letter.

(async () => {
  const told = document.getElementById("abele-opening");
  try {
    const packed = Uint8Array.from(atob(document.getElementById("abele-modules").textContent), (c) => c.charCodeAt(0));
    const modules = JSON.parse(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text());
    const map = document.createElement("script");
    map.type = "importmap";
    map.textContent = JSON.stringify({ imports: Object.fromEntries(Object.entries(modules).map(([name, text]) => [name, `data:text/javascript,${encodeURIComponent(text)}`])) });
    document.head.append(map);
    await import("abele/start.js");
  } catch (error) {
    told.textContent = `This browser cannot show the page: ${error.message}. Chromium 89, Firefox 113 and Safari 16.4 can, and later ones.`;
  }
})();
