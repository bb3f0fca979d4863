//! The agent loop: model, tools, deadlines and a stop at any point.
