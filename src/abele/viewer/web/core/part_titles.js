// What cycles go to, in words: the same in all views.

const TITLES = {
  compute: "compute", arrange: "arrange", exchange: "exchange", replicas: "between replicas", sync: "sync", host: "host streams", streams: "host streams",
  memory: "streaming memory", idle: "waiting",
};

/** The title of a part of the cycles. */
export const partTitle = (part) => TITLES[part] ?? part;
