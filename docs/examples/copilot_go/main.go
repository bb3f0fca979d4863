// An agent in Go with a tool as a Go function. The end of a context stops the turn, and then the function.
//
// COPILOT_CLI_PATH names the program `allstop`. ALLSTOP_MODEL names the model; docs/examples/copilot_go/script.yaml is a
// script that needs no provider.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	copilot "github.com/github/copilot-sdk/go"
)

type buildParams struct {
	Target string `json:"target" jsonschema:"name of the target"`
}

// build stands for long work. It ends early if its context ends.
func build(ctx context.Context, target string) (string, error) {
	select {
	case <-time.After(10 * time.Minute):
		return target + " is built", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// ask sends a message and returns the answer. If ctx ends first, ask stops the turn and returns after its work has ended.
func ask(ctx context.Context, session *copilot.Session, prompt string) (string, error) {
	answer, err := session.SendPromptAndWait(ctx, prompt)
	if err != nil && ctx.Err() != nil {
		// The context of the stop must not have ended.
		return "", errors.Join(ctx.Err(), session.Abort(context.Background()))
	}
	if err != nil {
		return "", err
	}
	if answer == nil {
		return "", errors.New("the turn has no answer")
	}
	message, _ := answer.Data.(*copilot.AssistantMessageData)
	return message.Content, nil
}

// receipts returns the receipts of stopped turns. Call it before the first message.
func receipts(session *copilot.Session) <-chan string {
	stopped := make(chan string, 1)
	session.On(func(event copilot.SessionEvent) {
		raw, isRaw := event.Data.(*copilot.RawSessionEventData)
		if !isRaw || raw.EventType != "allstop.receipt" {
			return
		}
		var data struct {
			Receipt struct {
				Items []struct{ Name, State string }
			}
		}
		if err := json.Unmarshal(raw.Raw, &data); err == nil {
			stopped <- fmt.Sprint(data.Receipt.Items)
		}
	})
	return stopped
}

func run(ctx context.Context) error {
	client := copilot.NewClient(nil)
	if err := client.Start(ctx); err != nil {
		return err
	}
	defer client.Stop()
	// The functions end after the stop of the turn. Before it, the model would get their errors and continue.
	tools, endTools := context.WithCancel(ctx)
	defer endTools()
	begun, ended := make(chan struct{}), make(chan struct{})
	tool := copilot.DefineTool("build", "Builds a target.",
		func(params buildParams, _ copilot.ToolInvocation) (string, error) {
			defer close(ended)
			close(begun)
			return build(tools, params.Target)
		})
	session, err := client.CreateSession(ctx, &copilot.SessionConfig{
		Tools:               []copilot.Tool{tool},
		OnPermissionRequest: copilot.PermissionHandler.ApproveAll,
	})
	if err != nil {
		return err
	}
	stopped := receipts(session)
	turn, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	// A user, a deadline or a shutdown ends the context. Here it ends as soon as the function runs.
	go func() {
		<-begun
		cancel()
	}()
	answer, err := ask(turn, session, "Build everything.")
	if err == nil {
		fmt.Println("answer:", answer)
		return nil
	}
	if !errors.Is(err, context.Canceled) {
		return err
	}
	select {
	case items := <-stopped:
		// The function is unreachable: only this program can end it.
		fmt.Println("stopped:", items)
	case <-time.After(10 * time.Second):
		fmt.Println("the turn ended before the stop")
	}
	endTools()
	<-ended
	fmt.Println("the function has ended")
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
