/** Every view: its word in the address, its name, its key, and where its code is. Each is loaded when it is first seen. */
import type { ComponentType } from "preact";

export interface View {
  readonly word: string;
  readonly label: string;
  /** Pressed after `g`. */
  readonly key: string;
  /** False: it is reached from others, and has no place in the menu. */
  readonly isInMenu: boolean;
  /** Whether the time range above it means something to it. */
  readonly hasRange: boolean;
  readonly load: () => Promise<{ default: ComponentType }>;
}

export const VIEWS: readonly View[] = [
  {
    word: "",
    label: "Now",
    key: "n",
    isInMenu: true,
    hasRange: false,
    load: () => import("./now"),
  },
  {
    word: "fabric",
    label: "Fabric",
    key: "f",
    isInMenu: true,
    hasRange: true,
    load: () => import("./fabric"),
  },
  {
    word: "job",
    label: "Jobs",
    key: "j",
    isInMenu: true,
    hasRange: true,
    load: () => import("./job"),
  },
  {
    word: "matrix",
    label: "Matrix",
    key: "m",
    isInMenu: true,
    hasRange: true,
    load: () => import("./matrix"),
  },
  {
    word: "compare",
    label: "Compare",
    key: "c",
    isInMenu: true,
    hasRange: true,
    load: () => import("./compare"),
  },
  {
    word: "incident",
    label: "Incidents",
    key: "i",
    isInMenu: true,
    hasRange: false,
    load: () => import("./incident"),
  },
  {
    word: "costs",
    label: "Costs",
    key: "w",
    isInMenu: false,
    hasRange: false,
    load: () => import("./costs"),
  },
  {
    word: "explore",
    label: "Explore",
    key: "e",
    isInMenu: true,
    hasRange: true,
    load: () => import("./explore"),
  },
  {
    word: "hosts",
    label: "Hosts",
    key: "h",
    isInMenu: true,
    hasRange: false,
    load: () => import("./hosts"),
  },
  {
    word: "settings",
    label: "Settings",
    key: "s",
    isInMenu: true,
    hasRange: false,
    load: () => import("./settings"),
  },
];
