//! Fields of HTTP that announce limits: written from a decision, and read from what servers send.
