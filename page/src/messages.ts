/** Every text that people see. */
export const messages = {
  name: "onthedot",
};
